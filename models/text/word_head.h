// The last layer of a transformer: features to a number for each word.
#pragma once

#include <memory>

#include "models/text/transformer_layers.h"

namespace dtrain {

/// x [..., width] → [..., vocabulary], or this rank's part of it where splits_words(); by the table of the
/// words of `embed` where the shape is tied. Parameters: weight, and with `bias` a bias of 0 for each word.
std::shared_ptr<Module> make_word_head(const TransformerLayers& layers, const Module& embed,
                                       bool bias = false);

}  // namespace dtrain
