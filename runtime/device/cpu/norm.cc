// Batch normalisation: channels-last f32 and bf16 in vector loops, everything else in plain ones. Sums over
// pixels run in float for a short stretch of rows and in double from there on; the variance is taken around
// the channel's first pixel, so that one pass over memory is enough.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"
#include "runtime/device/cpu/vector_loops.h"

namespace dtrain::cpu {
namespace {

/// Rows summed in float before they are added up in double.
constexpr std::int64_t kStretch = 128;

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

void require_channels(std::string_view operation, const BatchNormChannels& channels, const View& input) {
  require_rank(operation, "input", input, 4);
  const DType dtype = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::int64_t extent = input.shape[1];
  require_vector(operation, "weight", channels.weight, extent, dtype);
  require_vector(operation, "bias", channels.bias, extent, dtype);
  require_vector(operation, "running_mean", channels.running_mean, extent, dtype);
  require_vector(operation, "running_var", channels.running_var, extent, dtype);
  require_vector(operation, "mean", channels.mean, extent, dtype);
  require_vector(operation, "inv_std", channels.inv_std, extent, dtype);
}

void require_several(std::string_view operation, const View& input) {
  if (input.shape[1] == 0 || input.numel() / input.shape[1] > 1) return;
  throw UsageError("cpu kernel " + std::string(operation) +
                   ": expected more than one value per channel to normalise, got input shape " +
                   input.shape.to_string() + "; use a larger batch or evaluation mode");
}

bool vectorised(std::initializer_list<View> views) {
  return std::all_of(views.begin(), views.end(), [](const View& view) {
    return view.data == nullptr ||
           (view.is_channels_last() && (view.dtype == DType::f32 || view.dtype == DType::bf16));
  });
}

/// The pixels of a channels-last array, `kStretch` rows at a time.
struct Pixels {
  explicit Pixels(const View& view)
      : type(view.dtype == DType::bf16 ? RowType::bf16 : RowType::f32),
        channels(view.shape[1]),
        rows(channels == 0 ? 0 : view.numel() / channels),
        row_bytes(channels * static_cast<std::int64_t>(size_of(view.dtype))) {}

  std::byte* at(const View& view, std::int64_t row) const {
    return view.data == nullptr ? nullptr : view.as<std::byte>() + row * row_bytes;
  }
  /// Calls f(first row, size) for each stretch.
  template <class F>
  void stretches(F&& f) const {
    for (std::int64_t row = 0; row < rows; row += kStretch) {
      f(row, NormRows{std::min(kStretch, rows - row), channels});
    }
  }
  std::size_t size() const { return static_cast<std::size_t>(channels); }

  RowType type;
  std::int64_t channels, rows, row_bytes;
};

/// Two sums for each channel, collected stretch by stretch.
class Sums {
 public:
  explicit Sums(std::size_t channels) : part_(2 * channels), total_(2 * channels), channels_(channels) {}
  float* first() { return part_.data(); }
  float* second() { return part_.data() + channels_; }
  void flush() {
    for (std::size_t i = 0; i < part_.size(); ++i) total_[i] += part_[i];
    std::fill(part_.begin(), part_.end(), 0.0F);
  }
  double first(std::size_t channel) const { return total_[channel]; }
  double second(std::size_t channel) const { return total_[channels_ + channel]; }

 private:
  Floats part_;
  Doubles total_;
  std::size_t channels_;
};

Floats first_pixel(const Pixels& pixels, const View& input) {
  Floats values(pixels.size());
  for (std::size_t c = 0; c < values.size(); ++c) {
    values[c] = pixels.type == RowType::f32 ? input.as<const float>()[c]
                                            : static_cast<float>(input.as<const BFloat16>()[c]);
  }
  return values;
}

float value_or(const View& vector, std::size_t channel, float otherwise) {
  return vector.data == nullptr ? otherwise : vector.as<const float>()[channel];
}

/// The affine map each channel goes through.
struct Map {
  Map(const BatchNormChannels& channels, const Floats& mean, const Floats& inv_std)
      : scale(mean.size()), shift(mean.size()) {
    for (std::size_t c = 0; c < mean.size(); ++c) {
      scale[c] = inv_std[c] * value_or(channels.weight, c, 1);
      shift[c] = value_or(channels.bias, c, 0) - mean[c] * scale[c];
    }
  }
  Floats scale, shift;
};

void apply_map(const NormLoops& loops, const Pixels& pixels, const BatchNormRule& rule, const Map& map,
               const View& input, const View& residual, const View& output) {
  pixels.stretches([&](std::int64_t row, const NormRows& size) {
    loops.apply(pixels.type, size, rule.activation == Activation::relu, pixels.at(input, row),
                map.scale.data(), map.shift.data(), pixels.at(residual, row), pixels.at(output, row));
  });
}

void update_running(const View& running, std::size_t channel, double momentum, double value) {
  if (running.data == nullptr) return;
  float& kept = running.as<float>()[channel];
  kept = static_cast<float>((1 - momentum) * static_cast<double>(kept) + momentum * value);
}

void require_activations(std::string_view operation, const View& input, const View& other,
                         std::string_view name) {
  if (other.data != nullptr) require_like(operation, name, other, input);
}

}  // namespace

void CpuKernels::batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                            const View& residual, const View& output) {
  require_channels("batch_norm", channels, input);
  require_several("batch_norm", input);
  require_activations("batch_norm", input, residual, "residual");
  require_like("batch_norm", "output", output, input);
  if (input.numel() == 0) return;
  if (!vectorised({input, residual, output})) {
    return naive::batch_norm(rule, channels, input, residual, output);
  }
  const NormLoops& loops = vector_loops().norm;
  const Pixels pixels(input);
  const Floats pivot = first_pixel(pixels, input);
  Sums sums(pixels.size());
  pixels.stretches([&](std::int64_t row, const NormRows& size) {
    loops.moments(pixels.type, size, pixels.at(input, row), pivot.data(), sums.first(), sums.second());
    sums.flush();
  });
  Floats mean(pixels.size()), inv_std(pixels.size());
  const auto count = static_cast<double>(pixels.rows);
  for (std::size_t c = 0; c < pixels.size(); ++c) {
    const double offset = sums.first(c) / count;
    const double variance = std::max(sums.second(c) / count - offset * offset, 0.0);
    mean[c] = static_cast<float>(static_cast<double>(pivot[c]) + offset);
    inv_std[c] = static_cast<float>(1.0 / std::sqrt(variance + rule.eps));
    channels.mean.as<float>()[c] = mean[c];
    channels.inv_std.as<float>()[c] = inv_std[c];
    update_running(channels.running_mean, c, rule.momentum, static_cast<double>(pivot[c]) + offset);
    update_running(channels.running_var, c, rule.momentum, variance * count / (count - 1));
  }
  apply_map(loops, pixels, rule, Map(channels, mean, inv_std), input, residual, output);
}

void CpuKernels::batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels,
                                      const View& input, const View& residual, const View& output) {
  require_channels("batch_norm_inference", channels, input);
  require_activations("batch_norm_inference", input, residual, "residual");
  require_like("batch_norm_inference", "output", output, input);
  if (input.numel() == 0) return;
  if (!vectorised({input, residual, output})) {
    return naive::batch_norm_inference(rule, channels, input, residual, output);
  }
  const Pixels pixels(input);
  Floats mean(pixels.size()), inv_std(pixels.size());
  for (std::size_t c = 0; c < pixels.size(); ++c) {
    mean[c] = channels.running_mean.as<const float>()[c];
    inv_std[c] = static_cast<float>(
        1.0 / std::sqrt(static_cast<double>(channels.running_var.as<const float>()[c]) + rule.eps));
  }
  apply_map(vector_loops().norm, pixels, rule, Map(channels, mean, inv_std), input, residual, output);
}

void CpuKernels::batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels,
                                     const View& input, const View& output, const View& grad_output,
                                     const View& grad_input, const View& grad_residual,
                                     const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "batch_norm_backward";
  require_channels(kName, channels, input);
  require_several(kName, input);
  require_like(kName, "grad_output", grad_output, input);
  require_like(kName, "grad_input", grad_input, input);
  require_activations(kName, input, grad_residual, "grad_residual");
  const bool gated = rule.activation == Activation::relu;
  if (gated) require_like(kName, "output", output, input);
  if (input.numel() == 0) return;
  const View gate = gated ? output : View{};
  if (!vectorised({input, gate, grad_output, grad_input, grad_residual})) {
    return naive::batch_norm_backward(rule, channels, input, output, grad_output, grad_input, grad_residual,
                                      grad_weight, grad_bias);
  }
  const NormLoops& loops = vector_loops().norm;
  const Pixels pixels(input);
  const float* mean = channels.mean.as<const float>();
  Sums sums(pixels.size());
  pixels.stretches([&](std::int64_t row, const NormRows& size) {
    loops.grad_sums(pixels.type, size, pixels.at(grad_output, row), pixels.at(gate, row),
                    pixels.at(input, row), mean, pixels.at(grad_residual, row), sums.first(), sums.second());
    sums.flush();
  });
  Floats grad_mean(pixels.size()), slope(pixels.size()), scale(pixels.size());
  const auto count = static_cast<double>(pixels.rows);
  for (std::size_t c = 0; c < pixels.size(); ++c) {
    const double inv_std = channels.inv_std.as<const float>()[c];
    grad_mean[c] = static_cast<float>(sums.first(c) / count);
    slope[c] = static_cast<float>(inv_std * inv_std * sums.second(c) / count);
    scale[c] = static_cast<float>(inv_std) * value_or(channels.weight, c, 1);
    if (grad_weight.data != nullptr)
      grad_weight.as<float>()[c] = static_cast<float>(sums.second(c) * inv_std);
    if (grad_bias.data != nullptr) grad_bias.as<float>()[c] = static_cast<float>(sums.first(c));
  }
  // What was gated for the residual need not be gated again.
  const View from = grad_residual.data != nullptr ? grad_residual : grad_output;
  const View still = grad_residual.data != nullptr ? View{} : gate;
  pixels.stretches([&](std::int64_t row, const NormRows& size) {
    loops.grad_input(pixels.type, size, pixels.at(from, row), pixels.at(still, row), pixels.at(input, row),
                     mean, grad_mean.data(), slope.data(), scale.data(), pixels.at(grad_input, row));
  });
}

}  // namespace dtrain::cpu
