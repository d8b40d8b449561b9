// Log-softmax and cross-entropy over rows. Sums of exponentials are accumulated in double.
#include <cmath>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"

namespace dtrain::cpu {
namespace {

template <class T>
void log_softmax_row(std::int64_t columns, const T* in, std::int64_t in_step, T* out, std::int64_t out_step) {
  using C = Compute<T>;
  C largest = load(in[0]);
  for (std::int64_t c = 1; c < columns; ++c) {
    const C value = load(in[c * in_step]);
    if (value > largest) largest = value;
  }
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(load(in[c * in_step]) - largest);
  // In double, and one by one for double itself: the sum of a large maximum and a logarithm has no digits
  // left for the logarithm. Each result is rounded once.
  const double log_sum = std::log(sum);
  for (std::int64_t c = 0; c < columns; ++c) {
    const double from_largest = static_cast<double>(load(in[c * in_step])) - largest;
    out[c * out_step] = cast<T>(static_cast<C>(from_largest - log_sum));
  }
}

void require_targets(std::string_view operation, const View& target, std::int64_t rows, std::int64_t classes,
                     IgnoredTarget ignored) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t value = target.as<const std::int64_t>()[r * target.strides[0]];
    if ((value >= 0 && value < classes) || value == ignored) continue;
    refuse(operation, "target[" + std::to_string(r) + "] expected 0 to " + std::to_string(classes - 1) +
                          ", got " + std::to_string(value));
  }
}

}  // namespace

void CpuKernels::log_softmax(const View& in, const View& out) {
  if (in.shape[1] == 0) return;
  dispatch_floating("log_softmax", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t r = 0; r < in.shape[0]; ++r) {
      log_softmax_row<T>(in.shape[1], in.as<const T>() + r * in.strides[0], in.strides[1],
                         out.as<T>() + r * out.strides[0], out.strides[1]);
    }
  });
}

void CpuKernels::cross_entropy(const View& logits, const View& target, IgnoredTarget ignored,
                               const View& log_probs, const View& losses) {
  const std::int64_t rows = logits.shape[0];
  require_targets("cross_entropy", target, rows, logits.shape[1], ignored);
  log_softmax(logits, log_probs);
  dispatch_floating("cross_entropy", logits.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t wanted = target.as<const std::int64_t>()[r * target.strides[0]];
      if (wanted == ignored) {
        losses.as<T>()[r * losses.strides[0]] = T{};
        continue;
      }
      losses.as<T>()[r * losses.strides[0]] =
          cast<T>(-load(log_probs.as<const T>()[r * log_probs.strides[0] + wanted * log_probs.strides[1]]));
    }
  });
}

void CpuKernels::cross_entropy_backward(const View& log_probs, const View& target, IgnoredTarget ignored,
                                        const View& grad_losses, const View& grad_logits) {
  const std::int64_t rows = log_probs.shape[0];
  require_targets("cross_entropy_backward", target, rows, log_probs.shape[1], ignored);
  dispatch_floating("cross_entropy_backward", log_probs.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Compute<T>;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t wanted = target.as<const std::int64_t>()[r * target.strides[0]];
      const C grad = load(grad_losses.as<const T>()[r * grad_losses.strides[0]]);
      const T* from = log_probs.as<const T>() + r * log_probs.strides[0];
      T* to = grad_logits.as<T>() + r * grad_logits.strides[0];
      if (wanted == ignored) {
        for (std::int64_t c = 0; c < log_probs.shape[1]; ++c) to[c * grad_logits.strides[1]] = T{};
        continue;
      }
      for (std::int64_t c = 0; c < log_probs.shape[1]; ++c) {
        const C probability = std::exp(load(from[c * log_probs.strides[1]]));
        to[c * grad_logits.strides[1]] = cast<T>((probability - C(c == wanted)) * grad);
      }
    }
  });
}

}  // namespace dtrain::cpu
