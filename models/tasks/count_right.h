// How often the class with the largest logit, or one of the largest, is the one that was asked for.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// logits [N, classes], target i64 [N]. Copies both results to the host.
std::int64_t count_right(const Tensor& logits, const Tensor& target);

/// How often the logit of the class that was asked for is among the `count` largest of its row: fewer than
/// that are larger, or no numbers. A logit that is no number is not. Waits for the device.
std::int64_t count_among_first(const Tensor& logits, const Tensor& target, std::int64_t count);

}  // namespace dtrain
