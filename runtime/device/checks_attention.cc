// Checks of arguments: attention, and the places of its queries and keys.
#include "runtime/device/checked_kernels.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::checks {
namespace {

/// An array whose columns are neighbours.
void require_heads(std::string_view operation, std::string_view argument, const View& view, const Dims& shape,
                   DType dtype) {
  require_shape(operation, argument, view, shape);
  require_dtype(operation, argument, view, dtype);
  if (view.shape.back() > 1 && view.strides.back() != 1) {
    refuse(operation, as_text(argument) + " expected neighbours along the last dimension, got strides " +
                          view.strides.to_string());
  }
}

void require_dense(std::string_view operation, std::string_view argument, const View& view) {
  if (view.is_contiguous()) return;
  refuse(operation, as_text(argument) + " expected a dense array, got shape " + view.shape.to_string() +
                        " with strides " + view.strides.to_string());
}

void require_masks(std::string_view operation, const AttentionRule& rule, const AttentionMasks& masks,
                   const View& query, const View& key, DType exact) {
  const std::int64_t batch = query.shape[0], queries = query.shape[3], keys = key.shape[2];
  if (masks.bias.data != nullptr) {
    require_shape(operation, "bias", masks.bias, {batch, query.shape[1], query.shape[2], queries, keys});
    require_dtype(operation, "bias", masks.bias, exact);
  }
  require_vector(operation, "lengths", masks.lengths, batch, DType::i64);
  if (masks.lengths.data != nullptr) require_dense(operation, "lengths", masks.lengths);
  if (rule.first_query < 0) {
    refuse(operation, "first_query expected 0 or more, got " + std::to_string(rule.first_query));
  }
  if (masks.segments.data != nullptr) {
    require_shape(operation, "segments", masks.segments, {batch, keys});
    require_dtype(operation, "segments", masks.segments, DType::i32);
    require_dense(operation, "segments", masks.segments);
    if (rule.first_query + queries > keys) {
      refuse(operation, "segments expected a key at the place of each query, got " + std::to_string(keys) +
                            " keys for queries up to place " + std::to_string(rule.first_query + queries));
    }
  }
  if (!(masks.keep_share > 0 && masks.keep_share <= 1)) {
    refuse(operation,
           "keep_share expected more than 0 and at most 1, got " + std::to_string(masks.keep_share));
  }
  if (masks.keep_share == 1) return;
  require_shape(operation, "step", masks.numbers.step, {1});
  require_dtype(operation, "step", masks.numbers.step, DType::i64);
  require_vector(operation, "rows", masks.numbers.rows, batch, DType::i64);
  if (masks.numbers.first % 4 != 0) {
    refuse(operation,
           "first place of the mask expected a multiple of 4, got " + std::to_string(masks.numbers.first));
  }
}

void require_attention(std::string_view operation, const AttentionRule& rule, const AttentionMasks& masks,
                       const View& query, const View& key, const View& value, const View& output,
                       const View& log_sums) {
  if (!is_floating(query.dtype)) refuse_dtype(operation, query.dtype);
  require_rank(operation, "query", query, 5);
  require_rank(operation, "key", key, 4);
  require_rank(operation, "value", value, 4);
  const std::int64_t batch = query.shape[0], groups = query.shape[1], shared = query.shape[2],
                     queries = query.shape[3], width = query.shape[4], keys = key.shape[2],
                     value_width = value.shape[3];
  require_heads(operation, "query", query, query.shape, query.dtype);
  require_heads(operation, "key", key, {batch, groups, keys, width}, query.dtype);
  require_heads(operation, "value", value, {batch, groups, keys, value_width}, query.dtype);
  require_heads(operation, "output", output, {batch, groups, shared, queries, value_width}, query.dtype);
  if (width > kMostAttentionWidth || value_width > kMostAttentionWidth) {
    refuse(operation, "expected at most " + std::to_string(kMostAttentionWidth) + " elements a head, got " +
                          std::to_string(width) + " and " + std::to_string(value_width));
  }
  const DType exact = query.dtype == DType::f64 ? DType::f64 : DType::f32;
  require_shape(operation, "log_sums", log_sums, {batch, groups, shared, queries});
  require_dtype(operation, "log_sums", log_sums, exact);
  require_dense(operation, "log_sums", log_sums);
  require_masks(operation, rule, masks, query, key, exact);
}

}  // namespace

void rotary(const View& in, const View& cosines, const View& sines, bool /*interleaved*/, bool /*back*/,
            const View& out) {
  if (!is_floating(in.dtype)) refuse_dtype("rotary", in.dtype);
  require_rank("rotary", "in", in, 4);
  require_heads("rotary", "in", in, in.shape, in.dtype);
  require_heads("rotary", "out", out, in.shape, in.dtype);
  require_writable("rotary", "out", out);
  require_rank("rotary", "cosines", cosines, 3);
  const Dims angles = {in.shape[0], in.shape[2], cosines.shape[2]};
  require_shape("rotary", "cosines", cosines, angles);
  require_shape("rotary", "sines", sines, angles);
  for (const View* each : {&cosines, &sines}) {
    require_dtype("rotary", each == &cosines ? "cosines" : "sines", *each,
                  in.dtype == DType::f64 ? DType::f64 : DType::f32);
  }
  if (2 * cosines.shape[2] <= in.shape[3]) return;
  refuse("rotary", "cosines expected at most " + std::to_string(in.shape[3] / 2) + " pairs, got " +
                       std::to_string(cosines.shape[2]));
}

void attention(const AttentionRule& rule, const AttentionMasks& masks, const View& query, const View& key,
               const View& value, const View& output, const View& log_sums) {
  require_attention("attention", rule, masks, query, key, value, output, log_sums);
  require_writable("attention", "output", output);
}

void attention_backward(const AttentionRule& rule, const AttentionMasks& masks, const View& query,
                        const View& key, const View& value, const View& output, const View& log_sums,
                        const View& grad_output, const View& grad_query, const View& grad_key,
                        const View& grad_value) {
  constexpr std::string_view kName = "attention_backward";
  require_attention(kName, rule, masks, query, key, value, output, log_sums);
  require_heads(kName, "grad_output", grad_output, output.shape, query.dtype);
  const auto require_gradient = [&](std::string_view argument, const View& gradient, const View& of) {
    if (gradient.data == nullptr) return;
    require_heads(kName, argument, gradient, of.shape, query.dtype);
    require_writable(kName, argument, gradient);
  };
  require_gradient("grad_query", grad_query, query);
  require_gradient("grad_key", grad_key, key);
  require_gradient("grad_value", grad_value, value);
}

}  // namespace dtrain::checks
