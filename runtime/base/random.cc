#include "runtime/base/random.h"

#include <cmath>
#include <numeric>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain {

void Generator::uniform(std::span<float> out, float low, float high) {
  constexpr float kUnit = 1.0F / (1U << 24);
  for (float& value : out) {
    const float x = static_cast<float>(next32() & ((1U << 24) - 1)) * kUnit;
    // Fused, as PyTorch's vectorised code (AVX2 and later) has it: a separate product differs in the last
    // bit.
    value = std::fma(x, high - low, low);
  }
}

std::vector<std::int64_t> Generator::permutation(std::int64_t n) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 32) / 20;
  if (n < 0 || n >= kLimit) {
    throw UsageError("permutation: expected 0 <= n < " + std::to_string(kLimit) + ", got " +
                     std::to_string(n));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = 0; i < n - 1; ++i) {
    const auto skip = static_cast<std::int64_t>(next32()) % (n - i);
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i + skip)]);
  }
  return order;
}

std::string Generator::state() const {
  std::ostringstream text;
  text << engine_;
  return text.str();
}

Generator Generator::restore(const std::string& state) {
  Generator generator(0);
  std::istringstream text(state);
  if (!(text >> generator.engine_))
    throw UsageError("random generator state: expected the text of an MT19937 engine, got something else");
  return generator;
}

}  // namespace dtrain
