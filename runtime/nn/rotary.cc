#include "runtime/nn/rotary.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/rotary.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// theta^(-2i / E), with what scaling makes of it: rounded where PyTorch rounds.
std::vector<float> frequencies(std::int64_t head_width, const RotaryOptions& options) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < head_width; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_width);
    const auto power = static_cast<float>(std::pow(options.theta, static_cast<double>(exponent)));
    result.push_back(1.0F / power);
  }
  if (!options.scaling) return result;
  const RotaryScaling& scaling = *options.scaling;
  const auto original = static_cast<double>(scaling.original_positions);
  for (float& each : result) {
    const auto wavelength = static_cast<float>(2 * std::numbers::pi) / each;
    if (wavelength > original / scaling.low_factor) {
      each /= static_cast<float>(scaling.factor);
    } else if (wavelength >= original / scaling.high_factor) {
      const float share =
          (static_cast<float>(original) / wavelength - static_cast<float>(scaling.low_factor)) /
          static_cast<float>(scaling.high_factor - scaling.low_factor);
      each = (1 - share) * each / static_cast<float>(scaling.factor) + share * each;
    }
  }
  return result;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(std::int64_t positions, std::int64_t head_width,
                                 const std::shared_ptr<Device>& device, const RotaryOptions& options) {
  if (positions < 1 || head_width < 2 || head_width % 2 != 0) {
    throw UsageError("RotaryEmbedding: expected at least one position and heads of an even width, got " +
                     std::to_string(positions) + " and " + std::to_string(head_width));
  }
  const std::vector<float> turns = frequencies(head_width, options);
  std::vector<float> cosines, sines;
  cosines.reserve(static_cast<std::size_t>(positions) * turns.size());
  sines.reserve(cosines.capacity());
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const float turn : turns) {
      const float angle = static_cast<float>(position) * turn;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  cos_ = Tensor::from_data(cosines, {positions, head_width / 2}, device);
  sin_ = Tensor::from_data(sines, {positions, head_width / 2}, device);
}

void RotaryEmbedding::move_to(const std::shared_ptr<Device>& device) {
  cos_.move_to(device);
  sin_.move_to(device);
}

Tensor RotaryEmbedding::operator()(const Tensor& x, std::int64_t first) const {
  if (x.rank() < 2 || x.size(-1) != 2 * cos_.size(1) || first < 0 || first + x.size(-2) > positions()) {
    throw UsageError("RotaryEmbedding: expected [..., L, " + std::to_string(2 * cos_.size(1)) +
                     "] with at most " + std::to_string(positions()) + " positions, got " + x.describe() +
                     " from position " + std::to_string(first) + " on");
  }
  const std::int64_t end = first + x.size(-2);
  const Tensor cosines = cos_.slice(0, first, end), sines = sin_.slice(0, first, end);
  if (x.rank() > 2) return rotary_embedding(x, cosines, sines);
  return rotary_embedding(x.unsqueeze(0), cosines, sines).squeeze(0);
}

Tensor RotaryEmbedding::operator()(const Tensor& x, const Tensor& at) const {
  if (x.rank() < 3 || x.size(-1) != 2 * cos_.size(1) || at.shape() != Dims{x.size(0), x.size(-2)}) {
    throw UsageError("RotaryEmbedding: expected x [B, ..., L, " + std::to_string(2 * cos_.size(1)) +
                     "] and positions [B, L], got " + x.describe() + " and " + at.describe());
  }
  const Dims shape = {x.size(0), x.size(-2), cos_.size(1)};
  const Tensor places = at.reshape({-1});
  return rotary_embedding(x, cos_.index_select(0, places).reshape(shape),
                          sin_.index_select(0, places).reshape(shape));
}

}  // namespace dtrain
