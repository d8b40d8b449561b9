// Layer and RMS norm: each row in one visit, while it is in the cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/prefetch.h"
#include "runtime/device/cpu/loops/sums.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {
namespace {

/// Rows whose gradients are added up before they join the total, so that rounding errors stay small.
constexpr std::int64_t kBlock = 32;
/// Chunks of rows that have gradients of weight and bias of their own.
constexpr std::int64_t kMostChunks = 32;
constexpr double kElementNs = 0.5;
/// Elements ahead of a row's that are asked for while it is computed, where arrays of so many do not fit a
/// second-level cache.
constexpr std::int64_t kAhead = 512, kFar = 1 << 17;

/// Σ term(i) / count
template <class C, class Term>
C mean_of(std::int64_t count, Term term) {
  return static_cast<C>(sum_of<C>(count, term) / static_cast<double>(count));
}

/// An array that may be absent, which is part of its type: loops have no question in them.
template <class T, bool kPresent>
struct Optional {
  const T* data;
  /// The product with, or the sum of, element i where there is one.
  Compute<T> times(std::int64_t i, Compute<T> x) const {
    if constexpr (kPresent) x *= load(data[i]);
    return x;
  }
  Compute<T> plus(std::int64_t i, Compute<T> x) const {
    if constexpr (kPresent) x += load(data[i]);
    return x;
  }
};

/// Calls f with an Optional of the view's array.
template <class T, class F>
void with_optional(const View& view, F&& f) {
  if (view.data == nullptr) return f(Optional<T, false>{nullptr});
  f(Optional<T, true>{view.as<const T>()});
}

template <class T, class Weight, class Bias>
void norm_row(const RowNormRule& rule, std::int64_t count, const T* in, Weight weight, Bias bias,
              Compute<T>* mean, Compute<T>* inv_std, T* out) {
  using C = Compute<T>;
  const C middle = rule.centered ? mean_of<C>(count, [=](std::int64_t i) { return load(in[i]); }) : C{0};
  const C variance = mean_of<C>(count, [=](std::int64_t i) {
    const C x = load(in[i]) - middle;
    return x * x;
  });
  const C scale = C{1} / std::sqrt(variance + static_cast<C>(rule.eps));
  if (mean != nullptr) *mean = middle;
  *inv_std = scale;
  DTRAIN_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = cast<T>(bias.plus(i, weight.times(i, (load(in[i]) - middle) * scale)));
  }
}

/// A row's statistics and arrays in backward.
template <class T, class Weight>
struct GradRow {
  const T* in;
  Weight weight;
  const T* grad;
  Compute<T> mean, scale;
  bool centered;

  Compute<T> normalised(std::int64_t i) const { return (load(in[i]) - mean) * scale; }
  Compute<T> weighted(std::int64_t i) const { return weight.times(i, load(grad[i])); }
};

/// Of a row's gradients, times the weight, and of their products with the normalised row.
template <class T, class Weight>
std::array<Compute<T>, 2> means_of(const GradRow<T, Weight> row, std::int64_t count) {
  using C = Compute<T>;
  const auto product = [=](std::int64_t i) { return row.weighted(i) * row.normalised(i); };
  if (!row.centered) return {C{0}, mean_of<C>(count, product)};
  const auto sums = sums_of<C>(
      count, [=](std::int64_t i) { return row.weighted(i); }, product);
  const auto size = static_cast<double>(count);
  return {static_cast<C>(sums[0] / size), static_cast<C>(sums[1] / size)};
}

/// Gradients of weight and bias from some rows: block by block, then into the total.
template <class T>
class ParameterGradients {
 public:
  using C = Compute<T>;
  ParameterGradients(std::int64_t count, bool weight, bool bias)
      : weight_(weight || bias ? static_cast<std::size_t>(count) : 0),
        bias_(bias ? static_cast<std::size_t>(count) : 0),
        weight_total_(weight_.size()),
        bias_total_(bias_.size()) {}

  /// Adds a row's, and writes its gradient of the input to `to`: in one visit, since each of them reads the
  /// same.
  template <class Weight>
  void add(const GradRow<T, Weight> row, std::int64_t count, T* to) {
    const auto [level, along] = means_of(row, count);
    C* const weight = weight_.data();
    C* const bias = bias_.data();
    const auto visit = [=, level = level, along = along](auto has_weight, auto has_bias) {
      DTRAIN_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) {
        const C normalised = row.normalised(i);
        to[i] = cast<T>((row.weighted(i) - level - normalised * along) * row.scale);
        if constexpr (has_weight) weight[i] += load(row.grad[i]) * normalised;
        if constexpr (has_bias) bias[i] += load(row.grad[i]);
      }
    };
    if (!bias_.empty()) {
      visit(std::true_type(), std::true_type());
    } else if (!weight_.empty()) {
      visit(std::true_type(), std::false_type());
    } else {
      visit(std::false_type(), std::false_type());
    }
    if (++rows_ % kBlock == 0) flush();
  }
  void flush() {
    for (std::size_t i = 0; i < weight_.size(); ++i) weight_total_[i] += std::exchange(weight_[i], C{0});
    for (std::size_t i = 0; i < bias_.size(); ++i) bias_total_[i] += std::exchange(bias_[i], C{0});
  }
  /// Takes in what other rows gave; both flushed.
  void join(const ParameterGradients& other) {
    for (std::size_t i = 0; i < weight_.size(); ++i) weight_total_[i] += other.weight_total_[i];
    for (std::size_t i = 0; i < bias_.size(); ++i) bias_total_[i] += other.bias_total_[i];
  }
  void write(T* weight, T* bias) const {
    for (std::size_t i = 0; weight != nullptr && i < weight_.size(); ++i)
      weight[i] = cast<T>(weight_total_[i]);
    for (std::size_t i = 0; i < bias_.size(); ++i) bias[i] = cast<T>(bias_total_[i]);
  }

 private:
  std::vector<C> weight_, bias_;
  std::vector<double> weight_total_, bias_total_;
  std::int64_t rows_ = 0;
};

}  // namespace

void CpuKernels::row_norm(const RowNormRule& rule, const View& input, const View& weight, const View& bias,
                          const View& mean, const View& inv_std, const View& output) {
  const std::int64_t count = input.shape[1];
  dispatch_floating("row_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    auto* const means = mean.as<Compute<T>>();
    const auto run = [&](auto weights, auto biases, std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        norm_row<T>(rule, count, input.as<const T>() + r * count, weights, biases,
                    means == nullptr ? nullptr : means + r, inv_std.as<Compute<T>>() + r,
                    output.as<T>() + r * count);
      }
    };
    with_optional<T>(weight, [&](auto weights) {
      with_optional<T>(bias, [&](auto biases) {
        for_ranges(
            input.shape[0], rows_of_chunk(count), kElementNs * static_cast<double>(count),
            [&](std::int64_t begin, std::int64_t end) { widest([&] { run(weights, biases, begin, end); }); });
      });
    });
  });
}

void CpuKernels::row_norm_backward(const View& input, const View& weight, const View& mean,
                                   const View& inv_std, const View& grad_output, const View& grad_input,
                                   const View& grad_weight, const View& grad_bias) {
  const std::int64_t rows = input.shape[0], count = input.shape[1];
  const bool far = rows * count >= kFar;
  dispatch_floating("row_norm_backward", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto* const means = mean.as<const Compute<T>>();
    const ParameterGradients<T> none(count, grad_weight.data != nullptr, grad_bias.data != nullptr);
    const std::int64_t length = std::max((rows + kMostChunks - 1) / kMostChunks, rows_of_chunk(count));
    std::vector<ParameterGradients<T>> parts(static_cast<std::size_t>((rows + length - 1) / length), none);
    const auto run = [&](auto weights, std::int64_t chunk) {
      std::vector<T> nowhere(grad_input.data == nullptr ? static_cast<std::size_t>(count) : 0);
      ParameterGradients<T>& part = parts[static_cast<std::size_t>(chunk)];
      for (std::int64_t r = chunk * length; r < std::min(rows, (chunk + 1) * length); ++r) {
        const std::int64_t next = r * count + std::max(count, kAhead), asked = far ? count : 0;
        prefetch(input.as<const T>() + next, asked);
        prefetch(grad_output.as<const T>() + next, asked);
        if (grad_input.data != nullptr) prefetch(grad_input.as<const T>() + next, asked);
        const GradRow<T, decltype(weights)> row{
            input.as<const T>() + r * count,       weights,
            grad_output.as<const T>() + r * count, means == nullptr ? Compute<T>{0} : means[r],
            inv_std.as<const Compute<T>>()[r],     means != nullptr};
        part.add(row, count, nowhere.empty() ? grad_input.as<T>() + r * count : nowhere.data());
      }
      part.flush();
    };
    with_optional<T>(weight, [&](auto weights) {
      for_chunks(static_cast<std::int64_t>(parts.size()), kElementNs * static_cast<double>(length * count),
                 [&](std::int64_t chunk, int) { widest([&] { run(weights, chunk); }); });
    });
    ParameterGradients<T> total = none;
    for (const ParameterGradients<T>& part : parts) total.join(part);
    total.write(grad_weight.as<T>(), grad_bias.as<T>());
  });
}

}  // namespace dtrain::cpu
