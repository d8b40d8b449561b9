// cooperative_groups::reduce for the emulated machine: every thread of the tile gets the result, which is
// summed in pairs, near ones first.
#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};

template <unsigned kSize, class Parent, class T, class Op>
T reduce(const thread_block_tile<kSize, Parent>& tile, T value, Op op) {
  constexpr unsigned kLanes = kSize < 32 ? kSize : 32;
  const auto warp = tiled_partition<kLanes>(tile);
  for (unsigned bits = 1; bits < kLanes; bits *= 2) value = op(value, warp.shfl_xor(value, bits));
  if constexpr (kSize > 32) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    // One value a warp, read by all before the next reduction writes.
    static std::uint64_t of_warp[1024 / 32];
    const unsigned first = tile.meta_group_rank() * (kSize / 32), own = thread_block::thread_rank() / 32;
    if (warp.thread_rank() == 0) std::memcpy(&of_warp[own], &value, sizeof value);
    tile.sync();
    std::memcpy(&value, &of_warp[first], sizeof value);
    for (unsigned warp_of = 1; warp_of < kSize / 32; ++warp_of) {
      T other;
      std::memcpy(&other, &of_warp[first + warp_of], sizeof other);
      value = op(value, other);
    }
    tile.sync();
  }
  return value;
}

}  // namespace cooperative_groups
