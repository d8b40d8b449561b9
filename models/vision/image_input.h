// What a network for images is fed, as the data says it.
#pragma once

#include "models/vision/network.h"
#include "runtime/data/source.h"

namespace dtrain {

/// The input of a network that is to learn `source`, from its fields image (float32 [C, H, W]) and label
/// (int64
/// [], with `values` classes). Throws UsageError, naming source and fields, when it has none such.
NetworkInput image_input(const Source& source);

}  // namespace dtrain
