#include "runtime/base/random.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <sstream>
#include <string_view>

#include "runtime/base/draw_guard.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// `draw` is what was called.
void check_draw(std::string_view draw) {
  if (!DrawGuard::refused()) return;
  throw UsageError(
      "random numbers: expected a training step to draw none from a Generator, got a call of " +
      std::string(draw) +
      "(); its numbers would be the same on every rank, would not be saved, and would differ where a forward "
      "pass is recomputed. Use Noise (runtime/nn/noise.h), whose numbers are keyed "
      "by step and sample");
}

/// 16 uniform numbers become 16 normal ones, in T throughout.
template <class T>
void box_muller(std::span<T, 16> block, T mean, T deviation) {
  for (std::size_t i = 0; i < 8; ++i) {
    const T radius = std::sqrt(T{-2} * std::log(T{1} - block[i]));
    const T angle = T{2} * std::numbers::pi_v<T> * block[i + 8];
    block[i] = radius * std::cos(angle) * deviation + mean;
    block[i + 8] = radius * std::sin(angle) * deviation + mean;
  }
}

template <class T>
void fill_normal(Generator& generator, std::span<T> out, T mean, T deviation) {
  generator.uniform(out, T{0}, T{1});
  for (std::size_t i = 0; i + 16 <= out.size(); i += 16) {
    box_muller(std::span<T, 16>(out.data() + i, 16), mean, deviation);
  }
  if (out.size() % 16 == 0) return;
  const std::span<T, 16> last(out.data() + out.size() - 16, 16);
  generator.uniform(last, T{0}, T{1});
  box_muller(last, mean, deviation);
}

}  // namespace

std::uint32_t Generator::next32() {
  check_draw("next32");
  return draw32();
}

std::uint64_t Generator::next64() {
  check_draw("next64");
  return draw64();
}

std::uint64_t Generator::draw64() {
  const std::uint64_t upper = draw32();
  return upper << 32 | draw32();
}

void Generator::uniform(std::span<float> out, float low, float high) {
  check_draw("uniform");
  constexpr float kUnit = 1.0F / (1U << 24);
  for (float& value : out) {
    const float x = static_cast<float>(draw32() & ((1U << 24) - 1)) * kUnit;
    // Fused, as PyTorch's vectorised code (AVX2 and later) has it: a separate product differs in the last
    // bit.
    value = std::fma(x, high - low, low);
  }
}

void Generator::uniform(std::span<double> out, double low, double high) {
  check_draw("uniform");
  constexpr double kUnit = 1.0 / (std::uint64_t{1} << 53);
  for (double& value : out) {
    const double x = static_cast<double>(draw64() & ((std::uint64_t{1} << 53) - 1)) * kUnit;
    value = std::fma(x, high - low, low);
  }
}

void Generator::normal(std::span<float> out, double mean, double deviation) {
  check_draw("normal");
  if (out.size() >= 16) {
    return fill_normal(*this, out, static_cast<float>(mean), static_cast<float>(deviation));
  }
  for (float& value : out) value = static_cast<float>(next_normal() * deviation + mean);
}

void Generator::normal(std::span<double> out, double mean, double deviation) {
  check_draw("normal");
  if (out.size() >= 16) return fill_normal(*this, out, mean, deviation);
  for (double& value : out) value = next_normal() * deviation + mean;
}

double Generator::next_normal() {
  if (waiting_) {
    const double value = *waiting_;
    waiting_.reset();
    return value;
  }
  double pair[2];
  uniform(pair, 0.0, 1.0);
  const double radius = std::sqrt(-2.0 * std::log1p(-pair[1]));
  const double angle = 2.0 * std::numbers::pi * pair[0];
  waiting_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

std::vector<std::int64_t> Generator::permutation(std::int64_t n) {
  check_draw("permutation");
  constexpr std::int64_t kLimit = (std::int64_t{1} << 32) / 20;
  if (n < 0 || n >= kLimit) {
    throw UsageError("permutation: expected 0 <= n < " + std::to_string(kLimit) + ", got " +
                     std::to_string(n));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = 0; i < n - 1; ++i) {
    const auto skip = static_cast<std::int64_t>(draw32()) % (n - i);
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i + skip)]);
  }
  return order;
}

std::string Generator::state() const {
  std::ostringstream text;
  text << engine_;
  // As its bits: decimal digits would have to be as many as it takes to get the same number back.
  if (waiting_) text << " normal " << std::bit_cast<std::uint64_t>(*waiting_);
  return text.str();
}

Generator Generator::restore(const std::string& state) {
  Generator generator(0);
  std::istringstream text(state);
  std::string word;
  std::uint64_t bits = 0;
  const bool engine = static_cast<bool>(text >> generator.engine_);
  if (engine && text >> word) {
    if (word != "normal" || !(text >> bits)) word = "unknown";
    generator.waiting_ = std::bit_cast<double>(bits);
  }
  if (!engine || word == "unknown") {
    throw UsageError("random generator state: expected the text of an MT19937 engine, got something else");
  }
  return generator;
}

}  // namespace dtrain
