// Labels that are probabilities: a field `label` with a number for each class, as annotators' votes or
// another network's predictions are, in place of one class.
#pragma once

#include <cstdint>

#include "runtime/data/source.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Whether `label` is float32 [classes], of two classes or more.
bool is_soft_label(const Field& label) noexcept;

/// Of a label i64 [] with a known number of values, or of probabilities; 0 of any other field.
std::int64_t classes_of_label(const Field& label) noexcept;

/// Looks at samples of `source`, all where they are in memory, else 256 evenly, if it has such a field: the
/// probabilities are at least 0 and together 1, within 0.001. Throws DataError naming source and sample
/// otherwise, and what reading throws.
void check_soft_labels(const Source& source);

/// The classes of labels i64 [B]; of probabilities [B, classes] the likeliest, the first of equal ones.
Tensor likeliest(const Tensor& labels);

}  // namespace dtrain
