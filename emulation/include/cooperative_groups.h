// What the emulated machine has of cooperative groups: the threads of a block, and tiles of 2^n of them. A
// whole grid cannot meet here, since its blocks run one after the other, and threads that happen to be
// together (coalesced_threads) are not known.
#pragma once

#include <cstdint>
#include <source_location>
#include <type_traits>

namespace cooperative_groups {

class thread_block {
 public:
  static void sync(std::source_location at = std::source_location::current()) {
    ::emulation::device::barrier(at.file_name(), static_cast<int>(at.line()));
  }
  static unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};

/// What tiles of more than a warp need elsewhere; here the machine has it.
template <unsigned kMostThreads = 1024>
struct block_tile_memory {};

inline thread_block this_thread_block() { return {}; }
template <unsigned kMostThreads>
thread_block this_thread_block(block_tile_memory<kMostThreads>&) {
  return {};
}

/// kSize threads that follow each other in the block.
template <unsigned kSize, class Parent = thread_block>
class thread_block_tile {
  static_assert(kSize != 0 && (kSize & (kSize - 1)) == 0 && kSize <= 1024, "a power of two up to 1024");

 public:
  static unsigned thread_rank() { return thread_block::thread_rank() % kSize; }
  static constexpr unsigned size() { return kSize; }
  static constexpr unsigned num_threads() { return kSize; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / kSize; }
  static unsigned meta_group_size() { return (thread_block::size() + kSize - 1) / kSize; }

  static void sync() {
    if constexpr (kSize <= 32) {
      static_cast<void>(::emulation::device::exchange(mask(), 0));
    } else {
      ::emulation::device::meet(meta_group_rank() * kSize, kSize);
    }
  }

  template <class T>
  static T shfl(T value, int from) {
    return __shfl_sync(mask(), value, from, kSize);
  }
  template <class T>
  static T shfl_down(T value, unsigned by) {
    return __shfl_down_sync(mask(), value, by, kSize);
  }
  template <class T>
  static T shfl_up(T value, unsigned by) {
    return __shfl_up_sync(mask(), value, by, kSize);
  }
  template <class T>
  static T shfl_xor(T value, unsigned bits) {
    return __shfl_xor_sync(mask(), value, static_cast<int>(bits), kSize);
  }
  static unsigned ballot(bool value) {
    return (__ballot_sync(mask(), value) >> first_lane()) & (0xFFFFFFFFU >> (32 - kSize));
  }
  static bool any(bool value) { return __ballot_sync(mask(), value) != 0; }
  static bool all(bool value) { return __ballot_sync(mask(), value) == mask(); }

 private:
  static unsigned first_lane() { return static_cast<unsigned>(::emulation::device::lane()) / kSize * kSize; }
  static unsigned mask() {
    static_assert(kSize <= 32, "within a warp");
    return (0xFFFFFFFFU >> (32 - kSize)) << first_lane();
  }
};

template <unsigned kSize, class Parent>
thread_block_tile<kSize, Parent> tiled_partition(const Parent&) {
  return {};
}

inline void sync(const thread_block&, std::source_location at = std::source_location::current()) {
  thread_block::sync(at);
}
template <unsigned kSize, class Parent>
void sync(const thread_block_tile<kSize, Parent>& tile) {
  tile.sync();
}

}  // namespace cooperative_groups
