// Batch normalisation: channels-last f32 and bf16 in vector loops, everything else in plain ones. Sums over
// pixels run in float for a short stretch of rows and in double from there on. A stretch's variance is taken
// around the mean of all rows before it, so that one pass over memory is enough and no value is far from what
// is subtracted from it by chance. Rows are cut into chunks for threads, by shape alone; the sums of chunks
// are joined in their order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/vector_loops.h"
#include "runtime/device/cpu/naive.h"
#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {
namespace {

/// Rows summed in float before they are added up in double.
constexpr std::int64_t kStretch = 128;
/// Elements that make a chunk of rows, about, and what one takes.
constexpr std::int64_t kChunkElements = 65536;
constexpr double kElementNs = 0.2;

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

bool vectorised(std::initializer_list<View> views) {
  return std::all_of(views.begin(), views.end(), [](const View& view) {
    return view.data == nullptr ||
           (view.is_channels_last() && (view.dtype == DType::f32 || view.dtype == DType::bf16));
  });
}

/// The pixels of a channels-last array, `kStretch` rows at a time, some such stretches a chunk.
struct Pixels {
  explicit Pixels(const View& view)
      : type(view.dtype == DType::bf16 ? RowType::bf16 : RowType::f32),
        channels(view.shape[1]),
        rows(channels == 0 ? 0 : view.numel() / channels),
        row_bytes(channels * static_cast<std::int64_t>(size_of(view.dtype))),
        chunk_rows(
            std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(1, kStretch * channels)) *
            kStretch),
        chunks((rows + chunk_rows - 1) / chunk_rows) {}

  std::byte* at(const View& view, std::int64_t row) const {
    return view.data == nullptr ? nullptr : view.as<std::byte>() + row * row_bytes;
  }
  /// Calls f(first row, size) for each stretch of a chunk, in order.
  template <class F>
  void stretches(std::int64_t chunk, F&& f) const {
    const std::int64_t end = std::min(rows, (chunk + 1) * chunk_rows);
    for (std::int64_t row = chunk * chunk_rows; row < end; row += kStretch)
      f(row, NormRows{std::min(kStretch, end - row), channels});
  }
  /// Calls f(chunk) for each chunk, from any thread.
  template <class F>
  void for_each_chunk(F&& f) const {
    for_chunks(chunks, kElementNs * static_cast<double>(std::min(rows, chunk_rows) * channels),
               [&](std::int64_t chunk, int) { f(chunk); });
  }
  std::size_t size() const { return static_cast<std::size_t>(channels); }

  RowType type;
  std::int64_t channels, rows, row_bytes, chunk_rows, chunks;
};

/// Two sums for each channel of one chunk, collected stretch by stretch.
class Sums {
 public:
  explicit Sums(std::size_t channels) : part_(2 * channels), total_(2 * channels), channels_(channels) {}
  float* first() { return part_.data(); }
  float* second() { return part_.data() + channels_; }
  void flush() {
    for (std::size_t i = 0; i < part_.size(); ++i) total_[i] += part_[i];
    std::fill(part_.begin(), part_.end(), 0.0F);
  }
  /// The first sums, and the second behind them.
  const Doubles& totals() const { return total_; }

 private:
  Floats part_;
  Doubles total_;
  std::size_t channels_;
};

/// What sums are taken around before there is a mean; 0 where the first pixel is not finite.
Floats first_pixel(const Pixels& pixels, const View& input) {
  Floats values(pixels.size());
  for (std::size_t c = 0; c < values.size(); ++c) {
    const float value = pixels.type == RowType::f32 ? input.as<const float>()[c]
                                                    : static_cast<float>(input.as<const BFloat16>()[c]);
    if (std::isfinite(value)) values[c] = value;
  }
  return values;
}

/// Mean and sum of squared differences from it of each channel, stretch by stretch (Chan, Golub and LeVeque,
/// see batch_norm_combine).
class RunningMoments {
 public:
  explicit RunningMoments(std::size_t channels)
      : sum_(channels), squares_(channels), total_(channels), m2_(channels) {}

  /// Where loops add the sums of one stretch.
  float* sum() { return sum_.data(); }
  float* squares() { return squares_.data(); }

  /// Takes in a stretch of `rows` rows whose sums are around `pivot`, which becomes the mean so far (it stays
  /// where that is not finite: an infinite channel has an infinite mean and no variance, as PyTorch's has).
  void add(std::int64_t rows, Floats& pivot) {
    const auto n = static_cast<double>(rows), together = count_ + n;
    const double between = count_ * n / together, inverse = 1 / n, before = count_ > 0 ? 1 / count_ : 0,
                 after = 1 / together;
    for (std::size_t c = 0; c < total_.size(); ++c) {
      const double sum = sum_[c], here = static_cast<double>(pivot[c]) * n + sum,
                   apart = here * inverse - total_[c] * before;
      m2_[c] += squares_[c] - sum * sum * inverse + apart * apart * between;
      total_[c] += here;
      const auto mean = static_cast<float>(total_[c] * after);
      if (std::isfinite(mean)) pivot[c] = mean;
    }
    count_ = together;
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    std::fill(squares_.begin(), squares_.end(), 0.0F);
  }
  /// Takes in the rows of another, which come after these.
  void join(const RunningMoments& next) {
    const double n = next.count_, together = count_ + n;
    if (n == 0) return;
    const double between = count_ * n / together, before = count_ > 0 ? 1 / count_ : 0;
    for (std::size_t c = 0; c < total_.size(); ++c) {
      const double apart = next.total_[c] / n - total_[c] * before;
      m2_[c] += next.m2_[c] + apart * apart * between;
      total_[c] += next.total_[c];
    }
    count_ = together;
  }
  double mean(std::size_t channel) const { return total_[channel] / count_; }
  double m2(std::size_t channel) const { return std::max(m2_[channel], 0.0); }

 private:
  Floats sum_, squares_;
  Doubles total_, m2_;
  double count_ = 0;
};

/// A channel's number in f32 arrays of any stride.
float value_of(const View& vector, std::size_t channel) {
  return vector.as<const float>()[static_cast<std::int64_t>(channel) * vector.strides[0]];
}

float value_or(const View& vector, std::size_t channel, float otherwise) {
  return vector.data == nullptr ? otherwise : value_of(vector, channel);
}

Floats dense_copy(const View& vector) {
  Floats values(static_cast<std::size_t>(vector.numel()));
  for (std::size_t c = 0; c < values.size(); ++c) values[c] = value_of(vector, c);
  return values;
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
  pixels.for_each_chunk([&](std::int64_t chunk) {
    pixels.stretches(chunk, [&](std::int64_t row, const NormRows& size) {
      loops.apply(pixels.type, size, rule.activation == Activation::relu, pixels.at(input, row),
                  map.scale.data(), map.shift.data(), pixels.at(residual, row), pixels.at(output, row));
    });
  });
}

void vector_grad_sums(const BatchNormChannels& channels, const View& input, const View& gate,
                      const View& grad_output, const View& grad_residual, const View& sums) {
  const Pixels pixels(input);
  const Floats mean = dense_copy(channels.mean);
  std::vector<Sums> parts(static_cast<std::size_t>(pixels.chunks), Sums(pixels.size()));
  pixels.for_each_chunk([&](std::int64_t chunk) {
    Sums& part = parts[static_cast<std::size_t>(chunk)];
    pixels.stretches(chunk, [&](std::int64_t row, const NormRows& size) {
      vector_loops().norm.grad_sums(pixels.type, size, pixels.at(grad_output, row), pixels.at(gate, row),
                                    pixels.at(input, row), mean.data(), pixels.at(grad_residual, row),
                                    part.first(), part.second());
      part.flush();
    });
  });
  double* const out = sums.as<double>();
  out[0] = static_cast<double>(pixels.rows);
  std::fill_n(out + 1, 2 * pixels.size(), 0.0);
  for (const Sums& part : parts) {
    for (std::size_t i = 0; i < part.totals().size(); ++i) out[1 + i] += part.totals()[i];
  }
}

/// Memory for what the parts of a batch exchange, of a batch that has one part.
class Totals {
 public:
  explicit Totals(std::int64_t channels) : values_(static_cast<std::size_t>(2 * channels + 1)) {}
  View view() {
    const auto length = static_cast<std::int64_t>(values_.size());
    return {values_.data(), DType::f64, {1, length}, {length, 1}};
  }

 private:
  Doubles values_;
};

}  // namespace

void CpuKernels::batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                            const View& residual, const View& output) {
  if (input.numel() == 0) return;
  Totals moments(input.shape[1]);
  batch_norm_moments(input, moments.view());
  batch_norm_combine(rule, channels, moments.view());
  batch_norm_apply(rule, channels, input, residual, output);
}

void CpuKernels::batch_norm_moments(const View& input, const View& moments) {
  if (input.shape[1] == 0 || input.numel() == 0) return fill(moments, 0);
  if (!vectorised({input})) return naive::batch_norm_moments(input, moments);
  const Pixels pixels(input);
  const auto add_stretch = [&](RunningMoments& to, std::int64_t row, const NormRows& size, Floats& pivot) {
    vector_loops().norm.moments(pixels.type, size, pixels.at(input, row), pivot.data(), to.sum(),
                                to.squares());
    to.add(size.rows, pivot);
  };
  RunningMoments ahead(pixels.size());  // the first stretch of a chunk has no rows before it
  Floats start = first_pixel(pixels, input);
  add_stretch(ahead, 0, {std::min(kStretch, pixels.rows), pixels.channels}, start);
  std::vector<RunningMoments> parts(static_cast<std::size_t>(pixels.chunks), RunningMoments(pixels.size()));
  pixels.for_each_chunk([&](std::int64_t chunk) {
    Floats pivot = start;
    pixels.stretches(chunk, [&](std::int64_t row, const NormRows& size) {
      add_stretch(parts[static_cast<std::size_t>(chunk)], row, size, pivot);
    });
  });
  RunningMoments& all = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) all.join(parts[i]);
  double* const out = moments.as<double>();
  out[0] = static_cast<double>(pixels.rows);
  for (std::size_t c = 0; c < pixels.size(); ++c) {
    out[1 + c] = all.mean(c);
    out[1 + pixels.size() + c] = all.m2(c);
  }
}

void CpuKernels::batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels,
                                    const View& parts) {
  if (channels.mean.numel() == 0) return;
  double count = 0;
  for (std::int64_t part = 0; part < parts.shape[0]; ++part) {
    count += parts.as<const double>()[part * parts.shape[1]];
  }
  if (count < 2) {
    refuse("batch_norm_combine", "expected more than one value per channel to normalise, got " +
                                     std::to_string(static_cast<std::int64_t>(count)) + " in " +
                                     std::to_string(parts.shape[0]) +
                                     " parts; use a larger batch or evaluation mode");
  }
  naive::batch_norm_combine(rule, channels, parts);
}

void CpuKernels::batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels,
                                  const View& input, const View& residual, const View& output) {
  if (input.numel() == 0) return;
  if (!vectorised({input, residual, output})) {
    return naive::batch_norm_apply(rule, channels, input, residual, output);
  }
  const Pixels pixels(input);
  const Map map(channels, dense_copy(channels.mean), dense_copy(channels.inv_std));
  apply_map(vector_loops().norm, pixels, rule, map, input, residual, output);
}

void CpuKernels::batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels,
                                      const View& input, const View& residual, const View& output) {
  if (input.numel() == 0) return;
  if (!vectorised({input, residual, output})) {
    return naive::batch_norm_inference(rule, channels, input, residual, output);
  }
  const Pixels pixels(input);
  Floats inv_std(pixels.size());
  for (std::size_t c = 0; c < pixels.size(); ++c) {
    inv_std[c] = static_cast<float>(
        1.0 / std::sqrt(static_cast<double>(value_of(channels.running_var, c)) + rule.eps));
  }
  const Map map(channels, dense_copy(channels.running_mean), inv_std);
  apply_map(vector_loops().norm, pixels, rule, map, input, residual, output);
}

void CpuKernels::batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels,
                                     const View& input, const View& output, const View& grad_output,
                                     const View& grad_input, const View& grad_residual,
                                     const View& grad_weight, const View& grad_bias) {
  if (input.numel() == 0) return;
  const bool gated = rule.activation == Activation::relu;
  const View gate = gated ? output : View{};
  Totals sums(input.shape[1]);
  batch_norm_grad_sums(channels, input, gate, grad_output, grad_residual, grad_weight, grad_bias,
                       sums.view());
  // What was gated for the residual need not be gated again.
  const bool done = grad_residual.data != nullptr;
  batch_norm_grad_input(channels, sums.view(), input, done ? View{} : gate,
                        done ? grad_residual : grad_output, grad_input);
}

void CpuKernels::batch_norm_grad_sums(const BatchNormChannels& channels, const View& input,
                                      const View& output, const View& grad_output, const View& grad_residual,
                                      const View& grad_weight, const View& grad_bias, const View& sums) {
  if (input.shape[1] == 0 || input.numel() == 0) {
    fill(sums, 0);
  } else if (vectorised({input, output, grad_output, grad_residual})) {
    vector_grad_sums(channels, input, output, grad_output, grad_residual, sums);
  } else {
    naive::batch_norm_grad_sums(channels, input, output, grad_output, grad_residual, sums);
  }
  naive::batch_norm_channel_grads(channels, sums, grad_weight, grad_bias);
}

void CpuKernels::batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                                       const View& output, const View& grad_output, const View& grad_input) {
  if (input.numel() == 0) return;
  if (!vectorised({input, output, grad_output, grad_input})) {
    return naive::batch_norm_grad_input(channels, sums, input, output, grad_output, grad_input);
  }
  const Pixels pixels(input);
  const double* const in = sums.as<const double>();
  const Floats mean = dense_copy(channels.mean);
  Floats grad_mean(pixels.size()), slope(pixels.size()), scale(pixels.size());
  for (std::size_t c = 0; c < pixels.size(); ++c) {
    const double inv_std = value_of(channels.inv_std, c);
    grad_mean[c] = static_cast<float>(in[1 + c] / in[0]);
    slope[c] = static_cast<float>(inv_std * inv_std * in[1 + pixels.size() + c] / in[0]);
    scale[c] = static_cast<float>(inv_std) * value_or(channels.weight, c, 1);
  }
  pixels.for_each_chunk([&](std::int64_t chunk) {
    pixels.stretches(chunk, [&](std::int64_t row, const NormRows& size) {
      vector_loops().norm.grad_input(pixels.type, size, pixels.at(grad_output, row), pixels.at(output, row),
                                     pixels.at(input, row), mean.data(), grad_mean.data(), slope.data(),
                                     scale.data(), pixels.at(grad_input, row));
    });
  });
}

}  // namespace dtrain::cpu
