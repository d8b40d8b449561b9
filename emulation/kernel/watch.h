// What the threads of a kernel do to memory, access by access: the compiler puts a call before each of them
// (-fsanitize=thread), and what is called is ours (watch.cc), not the sanitizer's. From it come the bytes
// that a kernel moves, races in shared memory, and results that depend on the order of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace emulation {

/// Bytes of GPU memory, in sectors of 32, each counted once for a kernel: what a cache as large as the
/// kernel's needs would fetch and write back.
struct Traffic {
  std::uint64_t read_bytes = 0, written_bytes = 0;
};

/// Looks at one grid at a time, run by the calling thread.
class Watch {
 public:
  /// A piece of memory that kernels may reach.
  struct Piece {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    bool on_device = false;
  };
  using Find = std::function<std::optional<Piece>(const void*)>;
  struct Wishes {
    bool traffic = false;
    bool races = false;  ///< in shared memory, between two barriers
    bool twice = false;  ///< keep what is overwritten, so that the grid can run again (undo)
    bool any() const noexcept { return traffic || races || twice; }
  };

  /// `find` tells the pieces apart.
  explicit Watch(Find find) : find_(std::move(find)) {}
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Whether this build's kernels were compiled so that they can be watched.
  static bool works() noexcept;

  /// Looks at what the calling thread does from now on. `thread`: which thread of the block runs.
  void begin(const Wishes& wishes, const std::uint32_t* thread);
  /// Looks away.
  void end() noexcept;

  /// A block begins; its dynamic shared memory.
  void begin_block(std::byte* shared, std::size_t shared_bytes);
  /// All threads of the block have met.
  void meet_block() noexcept { ++epoch_; }
  /// All threads of a warp have met.
  void meet_warp(std::uint32_t warp);

  Traffic traffic() const noexcept { return traffic_; }
  /// The first race since begin(); empty: none.
  const std::string& race() const noexcept { return race_; }
  /// Memory as it was at begin(), for a second run in another order.
  void undo();
  /// How many bytes of GPU memory the second run has left differently.
  std::size_t differences() const;

  /// For the compiler's calls.
  void access(const void* at, std::size_t bytes, bool write);

 private:
  static constexpr std::size_t kSector = 32;
  static constexpr std::uint32_t kSeveral = 0xFFFFFFFFU, kWholeWarp = 0x80000000U;

  /// Who touched a byte of shared memory last, and when: a thread, several of the warp behind kWholeWarp, or
  /// kSeveral of several warps.
  struct Touch {
    std::uint32_t epoch = 0, thread = 0, warp_epoch = 0;
  };
  struct Cell {
    Touch write, read;
  };
  struct Shared {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::vector<Cell> cells;
    bool has(const std::byte* at) const noexcept { return at >= begin && at < begin + bytes; }
  };
  struct Free {
    void operator()(std::uint64_t* memory) const noexcept;
  };
  using Bits = std::unique_ptr<std::uint64_t[], Free>;
  /// A piece that the grid has touched.
  struct Touched {
    Piece piece;
    Bits read, written;  ///< a bit for each sector
  };
  struct Kept {
    std::byte* at = nullptr;
    bool on_device = false;
    std::byte before[kSector], after[kSector];
  };

  static Bits make_bits(std::size_t bytes);
  void touch_shared(Shared& shared, std::size_t at, std::size_t bytes, bool write);
  void touch_piece(const std::byte* at, std::size_t bytes, bool write);
  Touched* piece_of(const std::byte* at);
  static std::uint32_t warp_of(const Touch& touch);
  bool is_before(const Touch& touch) const;
  void note_race(const Touch& other, std::size_t at, bool write);

  const Find find_;
  Wishes wishes_;
  const std::uint32_t* thread_ = nullptr;
  Traffic traffic_;
  std::string race_;
  Shared static_, dynamic_;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> warp_epochs_;
  std::vector<std::unique_ptr<Touched>> touched_;
  Touched* last_ = nullptr;
  const std::byte* missed_ = nullptr;  ///< a line of memory that is no piece's
  std::vector<Kept> kept_;
  std::size_t kept_first_ = 0;  ///< by the first run; behind them what only the second has written
};

}  // namespace emulation
