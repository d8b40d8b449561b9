// The memory that the ranks of a communicator share, threads or processes of one machine: where they meet,
// and where what they send each other passes through in chunks. Nothing in it waits: a rank that cannot
// continue asks again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulation {

/// What a rank says of itself. All zero at first.
struct RankSlot {
  std::atomic<std::uint64_t> arrived, connected, left;
  std::atomic<std::uint64_t> published, consumed;  ///< rounds of collectives
  std::uint64_t host;                              ///< written before `arrived`
  std::int32_t gpu, process;
};

/// From one rank to another.
struct Mailbox {
  std::atomic<std::uint64_t> sent, taken;  ///< chunks
};

/// A named piece of shared memory for `ranks` ranks; the first one makes it.
class Segment {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
  static constexpr std::size_t kMessageBytes = std::size_t{64} << 10;

  /// Throws std::runtime_error when the system has no shared memory to give.
  Segment(std::string name, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int ranks() const noexcept { return ranks_; }
  RankSlot& rank(int index) const noexcept { return slots_[index]; }
  Mailbox& mailbox(int from, int to) const noexcept { return boxes_[from * ranks_ + to]; }
  /// Where `rank` puts what it publishes in `round`.
  std::byte* chunk(int rank, std::uint64_t round) const noexcept;
  std::byte* message(int from, int to, std::uint64_t number) const noexcept;
  /// No one else will come: the name goes, the memory stays until all let go.
  void unlink() noexcept;

 private:
  std::string name_;
  int ranks_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  RankSlot* slots_ = nullptr;
  Mailbox* boxes_ = nullptr;
  std::byte *chunks_ = nullptr, *messages_ = nullptr;
};

}  // namespace emulation
