// One direction between two ranks: a single-producer, single-consumer ring of slots in shared memory with one
// writer and one reader, who never wait for each other in here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/shm/stream_copy.h"

namespace dtrain {

/// A view of a ring, for its writer or its reader; each process has its own. The memory is zeros at first
/// and must outlive the view. A writer killed at any moment leaves whole messages only. What tells the other
/// side something is sequentially consistent, so that an EventCount notified after it wakes the other side or
/// need not.
class SpscRing {
 public:
  static constexpr std::size_t kSlots = 4;

  /// A message, or a piece of one, where the reader finds it.
  struct Piece {
    std::uint64_t tag;
    std::size_t bytes;
    const std::byte* data;
  };

  static constexpr std::size_t bytes_for(std::size_t slot_bytes) noexcept {
    return sizeof(Position) + kSlots * (sizeof(Head) + slot_bytes);
  }

  /// `memory` is aligned to a cache line, and `slot_bytes` a multiple of one.
  SpscRing(std::byte* memory, std::size_t slot_bytes) noexcept : memory_(memory), slot_bytes_(slot_bytes) {}

  std::size_t slot_bytes() const noexcept { return slot_bytes_; }

  /// Writer: copies `bytes` <= slot_bytes into the next slot; false when the reader has freed none.
  bool write(std::uint64_t tag, const std::byte* data, std::size_t bytes) noexcept {
    if (next_ - freed_ == kSlots) {
      freed_ = std::atomic_ref(position().freed).load(std::memory_order_seq_cst);
      if (next_ - freed_ == kSlots) return false;
    }
    Head& head = head_of(next_);
    if (bytes < kStreamBytes) {
      std::memcpy(data_of(head), data, bytes);
    } else {
      stream_copy(data_of(head), data, bytes);
    }
    head.tag = tag;
    head.bytes = static_cast<std::uint32_t>(bytes);
    std::atomic_ref(head.number).store(++next_, std::memory_order_seq_cst);
    return true;
  }

  /// Reader: whether there is a piece; front() may be read until pop().
  bool has_piece() const noexcept {
    return std::atomic_ref(head_of(next_).number).load(std::memory_order_seq_cst) == next_ + 1;
  }
  Piece front() const noexcept {
    Head& head = head_of(next_);
    return {head.tag, head.bytes, data_of(head)};
  }
  void pop() noexcept { std::atomic_ref(position().freed).store(++next_, std::memory_order_seq_cst); }

 private:
  // From here on what a copy costs outweighs what a message does.
  static constexpr std::size_t kStreamBytes = 16 * 1024;
  static constexpr std::size_t kCacheLine = 64;
  struct alignas(kCacheLine) Position {
    std::uint32_t freed;  ///< slots the reader has freed, all in all
  };
  // In the line before the data. `number` counts the ring's pieces from 1 and says that the rest is there.
  struct alignas(kCacheLine) Head {
    std::uint32_t number;
    std::uint32_t bytes;
    std::uint64_t tag;
  };

  Position& position() const noexcept { return *reinterpret_cast<Position*>(memory_); }
  Head& head_of(std::uint32_t piece) const noexcept {
    return *reinterpret_cast<Head*>(memory_ + sizeof(Position) +
                                    piece % kSlots * (sizeof(Head) + slot_bytes_));
  }
  static std::byte* data_of(Head& head) noexcept { return reinterpret_cast<std::byte*>(&head + 1); }

  std::byte* memory_;
  std::size_t slot_bytes_;
  std::uint32_t next_ = 0;   ///< pieces written, or read
  std::uint32_t freed_ = 0;  ///< writer: `freed` as last seen
};

}  // namespace dtrain
