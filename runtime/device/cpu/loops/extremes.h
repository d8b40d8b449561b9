// The largest or least of many floats, without looking for NaN at each of them.
#pragma once

#include <cstdint>

namespace dtrain::cpu {

/// The largest (or least) of from[0] to from[count - 1] where it does not hang on the order in which they are
/// compared: false, and `best` is untouched, where one of them is NaN, the result is a zero (of which there
/// are two), or they are too few for this processor's vectors. Compare one by one, then.
bool largest_of(std::int64_t count, const float* from, float& best) noexcept;
bool least_of(std::int64_t count, const float* from, float& best) noexcept;

}  // namespace dtrain::cpu
