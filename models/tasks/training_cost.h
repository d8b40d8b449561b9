// What learning costs a transformer, as language models are compared.
#pragma once

#include <cstdint>

#include "models/text/transformer_shape.h"
#include "training/task.h"

namespace dtrain {

/// Of a sample of `tokens` tokens, by PaLM's count (Chowdhery et al. 2022, appendix B), which is nanoGPT's,
/// too: a token costs 6 N + 12 L H Q T operations, where N are the weights that it is multiplied with (those
/// of the words of output, too, and no table that is only looked up), L layers of H heads have Q features
/// each, and it sees T tokens. Weights beside which adapters learn have no gradients: 4 N.
TrainingCost training_cost(const TransformerShape& shape, std::int64_t tokens);

}  // namespace dtrain
