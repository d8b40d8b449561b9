// How likely a network finds texts that continue others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/text/transformer.h"

namespace dtrain {

struct Continuation {
  std::vector<std::int32_t> context;  ///< at least one token
  std::vector<std::int32_t> text;     ///< that follows, at least one token
};

struct Likelihood {
  double log = 0;       ///< natural, summed over the text's tokens
  bool greedy = false;  ///< each of them is the likeliest where it is
};

/// One for each of `continuations`. They are computed in batches of `batch_size`, similar lengths together.
/// Of what is longer than the network's context the end counts, as in lm-evaluation-harness. The network is
/// whole, and in evaluation while it lasts. Throws UsageError for an empty context or text, a text longer
/// than the context, and tokens beyond the vocabulary.
std::vector<Likelihood> likelihoods(Transformer& network, std::span<const Continuation> continuations,
                                    std::int64_t batch_size);

}  // namespace dtrain
