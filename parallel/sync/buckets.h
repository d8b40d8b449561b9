// How gradients are laid out in buckets: PyTorch's DDP rule, as a pure function; and the memory of a bucket.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/device/view.h"

namespace dtrain {

/// A gradient to be averaged over the ranks.
struct GradientSlot {
  std::string name;       ///< for errors
  std::size_t count = 0;  ///< elements
  DType dtype = DType::f32;
  Dims shape = {};  ///< of the parameter, where anybody asks
};

struct BucketOptions {
  std::size_t first_bytes = 1U << 20;  ///< the first bucket is small, so that communication starts early
  std::size_t cap_bytes = 25U << 20;
};

/// One bucket: slots in the order in which their gradients are expected, each at an offset that is a multiple
/// of 64 bytes.
struct BucketLayout {
  DType dtype = DType::f32;
  std::vector<std::size_t> slots;    ///< indices into the slots
  std::vector<std::size_t> offsets;  ///< elements, beside `slots`
  std::size_t count = 0;             ///< elements, padding included

  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

/// Goes through the slots in `order` (a permutation of their indices: as gradients arrive) and closes a
/// dtype's bucket when its size reaches the limit: `first_bytes` for the first bucket of all that closes this
/// way of each dtype, then `cap_bytes`. Buckets are ordered by the place in `order` of their first slot.
std::vector<BucketLayout> lay_out_buckets(std::span<const GradientSlot> slots,
                                          std::span<const std::size_t> order, const BucketOptions& options);

/// count-1, …, 1, 0: backward meets parameters in the reverse order of their construction.
std::vector<std::size_t> reverse_order(std::size_t count);

/// How long an owner of buckets waits, before it frees them, for a collective that still uses them; one that
/// failed uses nothing any more.
inline constexpr std::chrono::seconds kDestructionWait{5};

/// `count` elements at `data`, flat and dense.
inline View flat_view(void* data, DType dtype, std::size_t count) {
  return {data, dtype, {static_cast<std::int64_t>(count)}, {1}};
}
inline void* offset_by(void* data, std::size_t elements, DType dtype) {
  return static_cast<std::byte*>(data) + elements * size_of(dtype);
}

}  // namespace dtrain
