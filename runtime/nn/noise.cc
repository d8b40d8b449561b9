#include "runtime/nn/noise.h"

#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/philox.h"

namespace dtrain {
namespace {

/// Of four neighbours.
using Four = std::array<float, 4>;

Four uniform(const Philox& random) {
  Four numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = unit_interval(random.words[i]);
  return numbers;
}

/// In (0, 1), of 32 random bits.
double inside(std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

Four normal(const Philox& random) {
  Four numbers;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    const double radius = std::sqrt(-2 * std::log(inside(random.words[i])));
    const double angle = 2 * std::numbers::pi * inside(random.words[i + 1]);
    numbers[i] = static_cast<float>(radius * std::cos(angle));
    numbers[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return numbers;
}

}  // namespace

Noise::Noise(std::shared_ptr<DropoutKey> key, double deviation, int part)
    : KeyedDraws("Noise", std::move(key), part), deviation_(deviation) {
  if (std::isfinite(deviation) && deviation >= 0) return;
  throw UsageError("Noise: expected a deviation of at least 0, got " + std::to_string(deviation));
}

Tensor Noise::draw(const Tensor& x, Kind kind) {
  const MaskPlace place = place_of(next_draw(x), x);
  const std::uint64_t key =
      scrambled(philox_key(place.seed, place.layer, place.step) ^ static_cast<std::uint64_t>(kind));
  std::vector<float> numbers;
  numbers.reserve(static_cast<std::size_t>(x.numel()));
  for (const std::int64_t row : place.rows) {
    for (std::int64_t at = place.first; at < place.first + place.each;) {
      const Philox random(key, static_cast<std::uint64_t>(at / 4), static_cast<std::uint64_t>(row));
      const Four four = kind == Kind::normal ? normal(random) : uniform(random);
      const std::int64_t next = std::min(place.first + place.each, at - at % 4 + 4);
      for (; at < next; ++at) numbers.push_back(four[static_cast<std::size_t>(at % 4)]);
    }
  }
  return Tensor::from_data(numbers, x.shape(), x.shared_device()).to(x.dtype());
}

Tensor Noise::rand_like(const Tensor& x) { return draw(x, Kind::uniform); }

Tensor Noise::randn_like(const Tensor& x) { return draw(x, Kind::normal); }

Tensor Noise::bernoulli_like(const Tensor& x, double probability) {
  if (!(probability >= 0 && probability <= 1))
    throw UsageError("Noise: expected a probability of 0 to 1, got " + std::to_string(probability));
  const NoGrad no_grad;
  const Tensor drawn = draw(x.dtype() == DType::f64 ? x : x.to(DType::f32), Kind::uniform);
  const Tensor limit = Tensor::full({}, probability, drawn.shared_device(), drawn.dtype());
  return where(greater(limit, drawn), Tensor::ones_like(drawn), Tensor::zeros_like(drawn)).to(x.dtype());
}

Tensor Noise::forward(const Tensor& x) {
  if (!is_training() || deviation_ == 0) return x;
  return add(x, mul(randn_like(x), deviation_));
}

}  // namespace dtrain
