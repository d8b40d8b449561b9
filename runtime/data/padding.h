// Samples that have lengths of their own (Field::length_field).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/data/source.h"

namespace dtrain {

/// Rows of `sample`, whose views are those of `fields`, that have values: field.shape[0] where samples have
/// no lengths. Throws Error for a length outside [0, field.shape[0]].
std::int64_t length_of(const Field& field, std::span<const Field> fields, std::span<const View> sample);

/// Writes padding behind the rows that have values. Views of fields with lengths are dense, in row-major
/// order.
void pad_sample(std::span<const Field> fields, std::span<const View> sample);

}  // namespace dtrain
