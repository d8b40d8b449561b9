// How often the class with the largest logit is the one that was asked for.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// logits [N, classes], target i64 [N]. Copies both results to the host.
std::int64_t count_right(const Tensor& logits, const Tensor& target);

}  // namespace dtrain
