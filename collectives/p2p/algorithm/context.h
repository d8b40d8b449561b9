// What every algorithm works with.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/p2p/transport.h"

namespace dtrain::p2p {

/// All borrowed for the time of a call.
struct AlgorithmContext {
  Transport& transport;
  std::vector<std::byte>& scratch;  ///< kept between calls
  Watchdog& watchdog;
  std::uint64_t tag;  ///< of the call's messages; its two low bits are zero, for phases
  std::size_t segment_bytes = std::size_t{128} << 10;  ///< larger messages are cut; the same on all ranks
};

/// Elements [begin, end).
struct Part {
  std::size_t begin = 0, end = 0;

  std::size_t count() const noexcept { return end - begin; }
};

/// What all peers' segments may take at once, both halves of a double buffer together.
inline constexpr std::size_t kMostScratchBytes = 16 * 1024 * 1024;

/// Rank `rank`'s part when `count` elements are cut into as many as there are ranks.
inline Part part_of(int rank, int size, std::size_t count) noexcept {
  const auto cut = [&](int i) {
    return count * static_cast<std::size_t>(i) / static_cast<std::size_t>(size);
  };
  return {cut(rank), cut(rank + 1)};
}

inline std::byte* at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }
inline const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

/// Buffers are written only by receives; a buffer that only sends may map constant memory.
inline void* for_sending(const void* data) { return const_cast<void*>(data); }

/// Calls `body` with every rank but `rank`, each rank starting behind itself so that no one is everyone's
/// first.
template <class Body>
void for_each_peer(int rank, int size, Body body) {
  for (int step = 1; step < size; ++step) body((rank + step) % size);
}

/// `bytes` of the scratch memory; the next call may move what an earlier one gave.
inline std::byte* scratch_of(const AlgorithmContext& context, std::size_t bytes) {
  if (context.scratch.size() < bytes) context.scratch.resize(bytes);
  return context.scratch.data();
}

}  // namespace dtrain::p2p
