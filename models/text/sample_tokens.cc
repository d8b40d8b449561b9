// Choosing the next token as PyTorch and transformers do.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "models/text/generate.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void check_options(const SamplingOptions& options) {
  if (options.temperature >= 0 && std::isfinite(options.temperature) && options.top_k >= 0 &&
      options.top_p > 0 && options.top_p <= 1) {
    return;
  }
  throw UsageError(
      fmt::format("sample_tokens: expected a temperature and top_k of at least 0 and a top_p above 0 and at "
                  "most 1, got {}, {} and "
                  "{}",
                  options.temperature, options.top_k, options.top_p));
}

std::int32_t largest(std::span<const float> row) {
  return static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
}

void keep_top_k(std::span<float> row, std::int64_t k) {
  if (k == 0 || k >= static_cast<std::int64_t>(row.size())) return;
  std::vector<float> sorted(row.begin(), row.end());
  std::ranges::nth_element(sorted, sorted.begin() + (k - 1), std::greater<>());
  const float least = sorted[static_cast<std::size_t>(k - 1)];
  for (float& each : row) each = each < least ? kNever : each;
}

/// Probabilities in place.
void softmax_in_place(std::span<float> row) {
  const float most = *std::ranges::max_element(row);
  double sum = 0;
  for (float& each : row) {
    each = std::exp(each - most);
    sum += static_cast<double>(each);
  }
  for (float& each : row) each = static_cast<float>(static_cast<double>(each) / sum);
}

/// The unlikeliest that together have at most 1 - p are left out, never all.
void keep_top_p(std::span<float> row, double p) {
  if (p >= 1) return;
  std::vector<float> probabilities(row.begin(), row.end());
  softmax_in_place(probabilities);
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return row[i]; });
  float together = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    together += probabilities[order[i]];
    if (together > static_cast<float>(1 - p)) return;
    row[order[i]] = kNever;
  }
}

/// The race of exponential clocks by which torch.multinomial draws one.
std::int32_t drawn(std::span<float> probabilities, Generator& generator) {
  std::vector<double> uniform(probabilities.size());
  generator.uniform(uniform, 0, 1);
  for (std::size_t i = 0; i < uniform.size(); ++i)
    probabilities[i] /= static_cast<float>(-std::log1p(-uniform[i]));
  return largest(probabilities);
}

}  // namespace

std::vector<std::int32_t> sample_tokens(std::span<const float> logits, std::int64_t rows,
                                        const SamplingOptions& options, Generator& generator) {
  check_options(options);
  const std::size_t words = logits.size() / static_cast<std::size_t>(std::max<std::int64_t>(rows, 1));
  std::vector<std::int32_t> tokens;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(r * words),
                           logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * words));
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); }))
      throw UsageError(
          "sample_tokens: expected finite logits, got some that are not; the weights have diverged");
    if (options.temperature == 0) {
      tokens.push_back(largest(row));
      continue;
    }
    for (float& each : row) each /= static_cast<float>(options.temperature);
    keep_top_k(row, options.top_k);
    keep_top_p(row, options.top_p);
    softmax_in_place(row);
    tokens.push_back(drawn(row, generator));
  }
  return tokens;
}

}  // namespace dtrain
