// Runs a kernel: the blocks of a grid one after the other, a block's threads as fibers that take turns where
// they wait for each other. One kernel runs at a time in a process, so static memory can be a block's shared
// memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulation/include/emulated_words.h"
#include "emulation/kernel/fiber.h"
#include "emulation/kernel/order.h"
#include "emulation/kernel/watch.h"

namespace emulation {

/// One launch. `thread` is what every thread of it does.
struct GridCall {
  dim3 grid, block;
  std::size_t dynamic_shared_bytes = 0;
  std::function<void()> thread;
  const char* name = "";
};

/// Runs grids. Used by one thread; keeps its fibers, so that one is made for the life of the process.
class GridRunner {
 public:
  /// `find` tells pieces of memory apart, for those who want to know what kernels do to them.
  GridRunner(std::uint64_t seed, Watch::Find find)
      : order_(seed), other_order_(seed ^ kOtherOrder), watch_(std::move(find)) {}
  ~GridRunner();
  GridRunner(const GridRunner&) = delete;
  GridRunner& operator=(const GridRunner&) = delete;

  /// What the threads did wrong ("divergent barrier ..."), or an empty text. After a fault the grid is given
  /// up. What `wishes` asks for is looked at: races are faults, and so are results that differ when the grid
  /// runs twice, in two orders.
  std::string run(const GridCall& call, const Watch::Wishes& wishes);
  /// Of the last run, where it was wished for.
  Traffic traffic() const noexcept { return watch_.traffic(); }

  /// For the threads themselves (emulated_cuda.h).
  static GridRunner& current() noexcept;
  /// Waits for the block's threads; `line` and `file` tell barriers apart.
  void barrier(const char* file, int line);
  /// How many of the block's threads have a true `value`; a barrier too.
  int barrier_count(const char* file, int line, bool value);
  /// Waits for the threads [first, first + count), of which this is one. For the race detector a barrier of
  /// the whole block.
  void meet(std::uint32_t first, std::uint32_t count);
  /// Waits until every lane in `mask` is here, and returns what each of them brought, by lane, until the
  /// running thread's next exchange.
  const device::Words* exchange(std::uint32_t mask, const std::uint64_t* words, std::size_t count);
  /// The kernel did something wrong: it is given up when the thread waits or ends.
  void fail(std::string what);
  void* dynamic_shared() noexcept { return shared_.data(); }

 private:
  enum class State : std::uint8_t { running, ready, at_barrier, in_warp, in_tile, done };
  struct Worker;
  struct Thread {
    State state = State::running;
    uint3 index{};
    Worker* worker = nullptr;    ///< on whose stack it waits
    const char* file = nullptr;  ///< where it waits
    int line = 0;
    int wait = 0;  ///< of which of the warp's exchanges, or of the block's tiles
  };
  /// Lanes that exchange values: those of one mask.
  struct Exchange {
    std::uint32_t mask = 0, arrived = 0;
    int generation = 0;
    device::Words brought[2][32] = {};  ///< in this generation, and in the one before, which lanes still read
  };
  /// Threads that wait for those of a part of the block.
  struct Tile {
    std::uint32_t first = 0, count = 0, arrived = 0;
  };
  struct Worker {
    GridRunner* runner = nullptr;
    std::unique_ptr<Fiber> fiber;
  };

  void run_blocks(const GridCall& call);
  void run_block(const GridCall& call);
  void work();
  bool start_next();
  void finish_thread();
  void release_barrier();
  void wait();
  void leave(Worker& self);
  Fiber& next();
  bool add_worker();

  static constexpr std::uint64_t kOtherOrder = 0x5DEECE66DULL;

  Order order_, other_order_;
  Watch watch_;
  const GridCall* call_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> fresh_, ready_, blocks_;
  std::vector<std::vector<Exchange>> warps_;
  std::vector<Tile> tiles_;
  std::vector<std::byte> shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  Worker* running_ = nullptr;
  Fiber home_;
  std::size_t next_fresh_ = 0;
  std::uint32_t thread_ = 0;
  std::uint32_t live_ = 0, arrived_ = 0;
  int votes_ = 0, last_votes_ = 0;
  std::string fault_;
};

}  // namespace emulation
