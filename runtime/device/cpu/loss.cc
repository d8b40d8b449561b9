// Log-softmax and cross-entropy over rows. Sums of exponentials are accumulated in double.
#include <cmath>
#include <type_traits>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/sums.h"
#include "runtime/device/cpu/loops/widest.h"
#include "runtime/device/elementary.h"

namespace dtrain::cpu {
namespace {

constexpr double kElementNs = 0.4;

/// A row of a matrix: element c is at data + c · step. Neighbours in memory have a step that the compiler
/// knows.
template <class T, class Step>
struct Row {
  T* data;
  Step step;
  T& operator[](std::int64_t c) const { return data[c * step]; }
};
using Neighbours = std::integral_constant<std::int64_t, 1>;

/// Calls f(r, row r of `in`, row r of `out`) for each row, in loops with the widest vectors, on all threads.
template <class T, class Out = T, class F>
void for_rows(const View& in, const View& out, const F& f) {
  const auto all = [&](auto in_step, auto out_step) {
    const std::int64_t columns = in.shape[1];
    for_ranges(in.shape[0], rows_of_chunk(columns), kElementNs * static_cast<double>(columns),
               [&](std::int64_t begin, std::int64_t end) {
                 widest([&] {
                   for (std::int64_t r = begin; r < end; ++r) {
                     f(r, Row<T, decltype(in_step)>{in.as<T>() + r * in.strides[0], in_step},
                       Row<Out, decltype(out_step)>{out.as<Out>() + r * out.strides[0], out_step});
                   }
                 });
               });
  };
  if (in.strides[1] == 1 && out.strides[1] == 1) return all(Neighbours{}, Neighbours{});
  all(in.strides[1], out.strides[1]);
}

/// Of a row with a NaN it need not be the NaN: sums of exponentials are NaN then.
template <class C, class In>
C largest_of(std::int64_t columns, In in) {
  return extreme_of<C>(
      columns, [](C a, C b) { return a > b ? a : b; }, [=](std::int64_t c) { return load(in[c]); });
}

template <class T, class In, class Out>
void log_softmax_row(std::int64_t columns, In in, Out out) {
  using C = Compute<T>;
  const C largest = largest_of<C>(columns, in);
  const double sum =
      sum_of<C>(columns, [=](std::int64_t c) { return math::fast_exp(load(in[c]) - largest); });
  // One by one: the sum of a large maximum and a logarithm has no digits left for the logarithm.
  const auto log_sum = static_cast<C>(std::log(sum));
  DTRAIN_INDEPENDENT
  for (std::int64_t c = 0; c < columns; ++c) out[c] = cast<T>((load(in[c]) - largest) - log_sum);
}

/// (e^log_probs - [c == wanted]) · grad
template <class T, class In, class Out>
void cross_entropy_gradient_row(std::int64_t columns, In log_probs, std::int64_t wanted, Compute<T> grad,
                                Out to) {
  using C = Compute<T>;
  const C at_wanted = math::fast_exp(load(log_probs[wanted])) - C{1};
  DTRAIN_INDEPENDENT
  for (std::int64_t c = 0; c < columns; ++c) to[c] = cast<T>(math::fast_exp(load(log_probs[c])) * grad);
  to[wanted] = cast<T>(at_wanted * grad);
}

/// The loss of a row; `to` becomes its slopes, `logits` the exponentials on the way.
template <class T, class In, class Out>
T slopes_row(std::int64_t columns, In logits, std::int64_t wanted, Out to) {
  const T largest = largest_of<T>(columns, logits), above = logits[wanted] - largest;
  DTRAIN_INDEPENDENT
  for (std::int64_t c = 0; c < columns; ++c) logits[c] = math::fast_exp(logits[c] - largest);
  const double sum = sum_of<T>(columns, [=](std::int64_t c) { return logits[c]; });
  const T share = static_cast<T>(1 / sum), at_wanted = logits[wanted] * share - T{1};
  using Slope = std::remove_reference_t<decltype(to[0])>;
  DTRAIN_INDEPENDENT
  for (std::int64_t c = 0; c < columns; ++c) to[c] = cast<Slope>(logits[c] * share);
  to[wanted] = cast<Slope>(at_wanted);
  return -(above - static_cast<T>(std::log(sum)));
}

/// The loss of a row alone.
template <class T, class In>
T loss_of_row(std::int64_t columns, In logits, std::int64_t wanted) {
  const T largest = largest_of<T>(columns, logits);
  const double sum = sum_of<T>(columns, [=](std::int64_t c) { return math::fast_exp(logits[c] - largest); });
  return -((logits[wanted] - largest) - static_cast<T>(std::log(sum)));
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
    for_rows<T>(in, out,
                [&](std::int64_t, auto from, auto to) { log_softmax_row<T>(in.shape[1], from, to); });
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
    const std::int64_t columns = log_probs.shape[1];
    for_rows<T>(log_probs, grad_logits, [&](std::int64_t r, auto from, auto to) {
      const std::int64_t wanted = target.as<const std::int64_t>()[r * target.strides[0]];
      if (wanted == ignored) {
        for (std::int64_t c = 0; c < columns; ++c) to[c] = T{};
        return;
      }
      const Compute<T> grad = load(grad_losses.as<const T>()[r * grad_losses.strides[0]]);
      cross_entropy_gradient_row<T>(columns, from, wanted, grad, to);
    });
  });
}

void CpuKernels::cross_entropy_slopes(const View& logits, const View& target, IgnoredTarget ignored,
                                      const View& losses, const View& slopes) {
  const std::int64_t rows = logits.shape[0], columns = logits.shape[1];
  require_targets("cross_entropy_slopes", target, rows, columns, ignored);
  const auto for_types = [&](auto tag, auto slope) {
    using T = decltype(tag);
    using Slope = decltype(slope);
    const bool wants_slopes = slopes.data != nullptr;
    for_rows<T, Slope>(logits, wants_slopes ? slopes : logits, [&](std::int64_t r, auto from, auto to) {
      const std::int64_t wanted = target.as<const std::int64_t>()[r * target.strides[0]];
      T& loss = losses.as<T>()[r * losses.strides[0]];
      if (wanted == ignored) {
        loss = T{};
        for (std::int64_t c = 0; wants_slopes && c < columns; ++c) to[c] = Slope{};
      } else if (wants_slopes) {
        loss = slopes_row<T>(columns, from, wanted, to);
      } else {
        loss = loss_of_row<T>(columns, from, wanted);
      }
    });
  };
  if (logits.dtype == DType::f64) return for_types(double{}, double{});
  if (slopes.data != nullptr && slopes.dtype == DType::bf16) return for_types(float{}, BFloat16{});
  for_types(float{}, float{});
}

}  // namespace dtrain::cpu
