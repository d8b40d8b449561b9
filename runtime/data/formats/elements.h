// Element by element from one strided sample to another, converted on the way: what sources of arrays share.
#pragma once

#include <cstring>

#include "runtime/device/view.h"

namespace dtrain {

/// Writes convert(From) for each element of `from` to its place in `to`, of the same shape. `from` need not
/// be aligned: files put their elements anywhere.
template <class From, class To, class Convert>
void convert_elements(const std::byte* from, const std::int64_t* from_strides, To* to,
                      const std::int64_t* to_strides, std::span<const std::int64_t> shape, Convert convert) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(From));
  if (shape.size() > 1) {
    for (std::int64_t i = 0; i < shape[0]; ++i)
      convert_elements<From>(from + i * *from_strides * kBytes, from_strides + 1, to + i * *to_strides,
                             to_strides + 1, shape.subspan(1), convert);
    return;
  }
  const std::int64_t count = shape.empty() ? 1 : shape[0];
  const std::int64_t from_step = shape.empty() ? 0 : *from_strides, to_step = shape.empty() ? 0 : *to_strides;
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * from_step * kBytes, sizeof value);
    to[i * to_step] = convert(value);
  }
}

template <class From, class To, class Convert>
void convert_elements(const View& from, const View& to, Convert convert) {
  convert_elements<From>(from.as<const std::byte>(), from.strides.begin(), to.as<To>(), to.strides.begin(),
                         {to.shape.begin(), to.shape.end()}, convert);
}

/// The same without converting; both of the same dtype.
void copy_elements(const View& from, const View& to);

/// Sample `index` of `samples`: one row of [N, …].
View sample_of(const View& samples, std::int64_t index);

}  // namespace dtrain
