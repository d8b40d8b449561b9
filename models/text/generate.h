// Text from a network that predicts the next token: which token comes next, and the loop around it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/text/transformer.h"
#include "runtime/base/random.h"

namespace dtrain {

/// How the next token is chosen from a network's logits; what is done comes in this order.
struct SamplingOptions {
  double temperature = 0;  ///< logits are divided by it; 0: the largest one is taken (greedy)
  std::int64_t top_k = 0;  ///< those below the k-th largest are left out; 0: none
  double top_p = 1;        ///< the likeliest tokens that together have at least this probability are kept
};

/// Tokens for `rows` of logits, each of `vocabulary` numbers, one behind the other. Greedy: the first of the
/// largest. Else as torch.multinomial(softmax(logits), 1) with the CPU generator of the same state: equal
/// seeds give equal tokens. Throws UsageError for options out of range and for logits that are not finite.
std::vector<std::int32_t> sample_tokens(std::span<const float> logits, std::int64_t rows,
                                        const SamplingOptions& options, Generator& generator);

struct GenerateOptions {
  std::int64_t tokens = 100;  ///< new ones for each prompt, at most; fewer where the context is full
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop = {};  ///< a text ends with one of these, which is not part of it
  bool cache = true;  ///< false: every token's keys and values are computed in each step, to compare
};

using TokenArrived = std::function<void(std::size_t prompt, std::int32_t token)>;

/// Continues each of `prompts`, all in one batch, and calls `arrived`, if there is one, with every token as
/// it comes; returns the new tokens. The network is whole, and in evaluation while it lasts. Memory: keys and
/// values of all tokens. Throws UsageError for an empty prompt, one that fills the context, and tokens beyond
/// the vocabulary.
std::vector<std::vector<std::int32_t>> generate(Transformer& network,
                                                const std::vector<std::vector<std::int32_t>>& prompts,
                                                const GenerateOptions& options,
                                                const TokenArrived& arrived = {});

}  // namespace dtrain
