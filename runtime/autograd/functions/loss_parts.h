// What the forms of cross entropy share: logits [N, C, …] as rows of classes.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Where the classes are in logits [N, C, …] or [C].
inline int class_dim(const Tensor& logits) { return logits.rank() == 1 ? 0 : 1; }

/// Throws UsageError unless `logits` is floating [N, C, …] and `target` int64 [N, …], on one device.
void check_classes(const Tensor& logits, const Tensor& target);

/// [N, C, …] as [N · …, C], in the order of a target's elements.
Tensor rows_of_classes(const Tensor& x);

}  // namespace dtrain
