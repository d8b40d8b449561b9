// Memory for what a graph records: addresses that are not given out again while the graph lives. Knows no
// CUDA: where segments come from is told, so that it is tested without a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

namespace dtrain::cuda {

/// Hands out pieces of segments that only ever grow in number. A piece that was given back is handed out
/// again: right where all work on the pieces is ordered as the calls are. Not thread-safe.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kSmallestSegment = std::size_t{64} << 20;

  /// `grow` gives a segment of at least the bytes asked for, aligned to kAlignment, or throws; `release`
  /// takes segments back when the arena goes.
  Arena(std::function<void*(std::size_t)> grow, std::function<void(void*)> release);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// At least `bytes` (not 0), aligned to kAlignment. Throws what `grow` throws.
  void* allocate(std::size_t bytes);
  /// False, and nothing happens, for memory that is not the arena's.
  bool deallocate(void* memory);
  /// Nothing is handed out.
  bool is_idle() const noexcept { return used_.empty(); }

 private:
  struct Piece {
    std::size_t bytes = 0;
    std::size_t segment = 0;
  };
  using Pieces = std::map<std::byte*, Piece>;

  Pieces::iterator find_room(std::size_t bytes);
  Pieces::iterator add_segment(std::size_t bytes);

  std::function<void*(std::size_t)> grow_;
  std::function<void(void*)> release_;
  std::vector<void*> segments_;
  Pieces free_, used_;
};

}  // namespace dtrain::cuda
