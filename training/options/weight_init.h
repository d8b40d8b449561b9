// --init: other initial weights than each layer's own.
#pragma once

#include <functional>
#include <string_view>

#include "runtime/base/random.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// Writes the initial values of one parameter; empty: it keeps those it has.
using WeightInit = std::function<void(const Tensor& weight, Generator& generator)>;

/// normal:STD and uniform:BOUND with a number of at least 0, xavier-uniform, xavier-normal, kaiming-uniform
/// and kaiming-normal, with the defaults of torch.nn.init. Empty for any other text.
WeightInit parse_weight_init(std::string_view text);

/// Applies `init` to every parameter of two and more dimensions, in the order of torch's apply(): weights of
/// linear layers, convolutions, recurrent layers and embeddings, not biases and norms. Returns how many.
int initialize_weights(Module& network, const WeightInit& init, Generator& generator);

}  // namespace dtrain
