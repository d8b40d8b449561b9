// Layer and RMS norm: each row in one visit, while it is in the cache.
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"

namespace dtrain::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
/// Rows whose gradients are added up before they join the total, so that rounding errors stay small.
constexpr std::int64_t kBlock = 32;

/// Σ term(i) in lanes that are independent, for the compiler to vectorise.
template <class C, class Term>
C sum_of(std::int64_t count, Term term) {
  C lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
void norm_row(const RowNormRule& rule, std::int64_t count, const T* in, const T* weight, const T* bias,
              Compute<T>* mean, Compute<T>* inv_std, T* out) {
  using C = Compute<T>;
  const auto length = static_cast<C>(count);
  const C middle =
      rule.centered ? sum_of<C>(count, [&](std::int64_t i) { return load(in[i]); }) / length : C{0};
  const C variance = sum_of<C>(count,
                               [&](std::int64_t i) {
                                 const C x = load(in[i]) - middle;
                                 return x * x;
                               }) /
                     length;
  const C scale = C{1} / std::sqrt(variance + static_cast<C>(rule.eps));
  if (mean != nullptr) *mean = middle;
  *inv_std = scale;
  for (std::int64_t i = 0; i < count; ++i) {
    C y = (load(in[i]) - middle) * scale;
    if (weight != nullptr) y *= load(weight[i]);
    if (bias != nullptr) y += load(bias[i]);
    out[i] = cast<T>(y);
  }
}

/// A row's statistics and arrays in backward.
template <class T>
struct GradRow {
  const T *in, *weight, *grad;
  Compute<T> mean, scale;
  bool centered;

  Compute<T> normalised(std::int64_t i) const { return (load(in[i]) - mean) * scale; }
  Compute<T> weighted(std::int64_t i) const {
    return weight == nullptr ? load(grad[i]) : load(grad[i]) * load(weight[i]);
  }
};

template <class T>
void input_gradient_row(const GradRow<T>& row, std::int64_t count, T* to) {
  using C = Compute<T>;
  const auto length = static_cast<C>(count);
  const C level =
      row.centered ? sum_of<C>(count, [&](std::int64_t i) { return row.weighted(i); }) / length : C{0};
  const C along =
      sum_of<C>(count, [&](std::int64_t i) { return row.weighted(i) * row.normalised(i); }) / length;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = cast<T>((row.weighted(i) - level - row.normalised(i) * along) * row.scale);
  }
}

/// Gradients of weight and bias: block by block, then into the total.
template <class T>
class ParameterGradients {
 public:
  using C = Compute<T>;
  ParameterGradients(std::int64_t count, bool weight, bool bias)
      : weight_(weight ? static_cast<std::size_t>(count) : 0),
        bias_(bias ? static_cast<std::size_t>(count) : 0),
        weight_total_(weight_.size()),
        bias_total_(bias_.size()) {}

  void add(const GradRow<T>& row) {
    C* const weight = weight_.data();
    C* const bias = bias_.data();
    for (std::size_t i = 0; i < weight_.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      weight[i] += load(row.grad[i]) * row.normalised(at);
    }
    for (std::size_t i = 0; i < bias_.size(); ++i) bias[i] += load(row.grad[i]);
    if (++rows_ % kBlock == 0) flush();
  }
  void write(T* weight, T* bias) {
    flush();
    for (std::size_t i = 0; i < weight_.size(); ++i) weight[i] = cast<T>(weight_total_[i]);
    for (std::size_t i = 0; i < bias_.size(); ++i) bias[i] = cast<T>(bias_total_[i]);
  }

 private:
  void flush() {
    for (std::size_t i = 0; i < weight_.size(); ++i) weight_total_[i] += std::exchange(weight_[i], C{0});
    for (std::size_t i = 0; i < bias_.size(); ++i) bias_total_[i] += std::exchange(bias_[i], C{0});
  }

  std::vector<C> weight_, bias_;
  std::vector<double> weight_total_, bias_total_;
  std::int64_t rows_ = 0;
};

}  // namespace

void CpuKernels::row_norm(const RowNormRule& rule, const View& input, const View& weight, const View& bias,
                          const View& mean, const View& inv_std, const View& output) {
  const std::int64_t rows = input.shape[0], count = input.shape[1];
  dispatch_floating("row_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    auto* const means = mean.as<Compute<T>>();
    for (std::int64_t r = 0; r < rows; ++r) {
      norm_row<T>(rule, count, input.as<const T>() + r * count, weight.as<const T>(), bias.as<const T>(),
                  means == nullptr ? nullptr : means + r, inv_std.as<Compute<T>>() + r,
                  output.as<T>() + r * count);
    }
  });
}

void CpuKernels::row_norm_backward(const View& input, const View& weight, const View& mean,
                                   const View& inv_std, const View& grad_output, const View& grad_input,
                                   const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "row_norm_backward";
  const std::int64_t rows = input.shape[0], count = input.shape[1];
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto* const means = mean.as<const Compute<T>>();
    ParameterGradients<T> parameters(count, grad_weight.data != nullptr, grad_bias.data != nullptr);
    for (std::int64_t r = 0; r < rows; ++r) {
      const GradRow<T> row{input.as<const T>() + r * count,       weight.as<const T>(),
                           grad_output.as<const T>() + r * count, means == nullptr ? Compute<T>{0} : means[r],
                           inv_std.as<const Compute<T>>()[r],     means != nullptr};
      if (grad_input.data != nullptr) input_gradient_row<T>(row, count, grad_input.as<T>() + r * count);
      parameters.add(row);
    }
    parameters.write(grad_weight.as<T>(), grad_bias.as<T>());
  });
}

}  // namespace dtrain::cpu
