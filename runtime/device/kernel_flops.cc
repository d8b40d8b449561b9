#include "runtime/device/kernel_flops.h"

#include <algorithm>

namespace dtrain {
namespace {

// Of one element of a convolution's output.
double taps_flops(const View& weight) noexcept {
  return 2.0 * static_cast<double>(weight.shape[1] * weight.shape[2] * weight.shape[3]);
}

double window(const Pool2dGeometry& pool) noexcept {
  return static_cast<double>(pool.kernel_h * pool.kernel_w);
}

}  // namespace

double matmul_flops(const View& a, const View& out) noexcept {
  return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(a.shape.back());
}

double attention_flops(const AttentionRule& rule, const View& query, const View& key,
                       const View& value) noexcept {
  const auto queries = static_cast<double>(query.shape[3]), keys = static_cast<double>(key.shape[2]);
  double pairs = queries * keys;
  if (rule.causal) {
    // The keys up to the place of each query: an arithmetic series until all are seen.
    const double first = std::min(keys, static_cast<double>(rule.first_query + 1));
    const double growing = std::min(queries, keys - first + 1);
    pairs = growing * (2 * first + growing - 1) / 2 + (queries - growing) * keys;
  }
  return 2 * static_cast<double>(query.shape[0] * query.shape[1] * query.shape[2]) * pairs *
         static_cast<double>(query.shape[4] + value.shape[3]);
}

double conv2d_flops(const View& weight, const View& output) noexcept {
  return static_cast<double>(output.numel()) * taps_flops(weight);
}

double conv2d_pool2d_flops(const Pool2dGeometry& pool, const View& weight, const View& output) noexcept {
  return conv2d_flops(weight, output) * window(pool);
}

double conv2d_pool2d_backward_flops(const Pool2dGeometry& pool, const View& weight, const View& grad_output,
                                    bool wants_input) noexcept {
  const double places = pool.kind == PoolKind::max ? 1 : window(pool);
  return conv2d_flops(weight, grad_output) * places * (wants_input ? 2 : 1);
}

}  // namespace dtrain
