// The emulated machine: its GPUs, and the one thread that does what their streams hold. With a seed, work
// waits until somebody needs it and streams take turns at random; without one it runs as soon as it may. One
// machine a process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "emulation/kernel/block.h"
#include "emulation/machine/counts.h"
#include "emulation/machine/faults.h"
#include "emulation/machine/memory.h"
#include "emulation/machine/options.h"
#include "emulation/machine/stream.h"
#include "emulation/machine/work_log.h"

namespace emulation {

class Machine {
 public:
  using Lock = std::unique_lock<std::mutex>;

  static Machine& get();

  const Options& options() const noexcept { return options_; }
  int device_count() const noexcept { return static_cast<int>(options_.visible.size()); }
  Memory& memory() noexcept { return memory_; }
  Counts& counts() noexcept { return counts_; }
  /// What is to go wrong now on the visible GPU `device`, if anything.
  std::string_view fault(Place place, int device, std::uint64_t bytes = 0) {
    return faults_.next(place, options_.visible[static_cast<std::size_t>(device)], bytes);
  }
  Order& order() noexcept { return order_; }
  GridRunner& grids() noexcept { return grids_; }
  WorkLog& work() noexcept { return work_log_; }

  Lock lock() { return Lock(mutex_); }

  // Everything from here to wait() is called with the lock held.
  std::shared_ptr<Stream> make_stream(int device, bool blocking, int priority);
  /// The stream behind a handle (null: the legacy default stream of the calling thread's GPU); null for a bad
  /// one.
  std::shared_ptr<Stream> find(cudaStream_t handle);
  /// Queues on the stream, or adds a node to what is being recorded from it.
  void queue(const std::shared_ptr<Stream>& stream, Operation operation);
  void record(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);
  void make_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);
  /// The context of a GPU is lost: all that is queued is dropped, and each call from now on says `error`.
  void lose(int device, cudaError_t error, const std::string& what);
  cudaError_t lost(int device) const;
  bool is_idle(int device) const;

  std::vector<std::shared_ptr<Capture>>& captures() noexcept { return captures_; }

  /// Blocks until `over` is true (asked with the lock held) or the GPU is lost.
  template <class Over>
  void wait(Lock& lock, int device, Over over) {
    ++counts_.host_waits;
    ++waiting_;
    work_.notify_all();
    progress_.wait(lock, [&] { return over() || lost(device) != cudaSuccess; });
    --waiting_;
  }
  /// Somebody asks again and again: that counts as need for a moment.
  void nudge();
  void notify() { work_.notify_all(); }

 private:
  Machine();
  ~Machine() = delete;
  void stop();
  void run();
  bool may_run() const;
  bool is_ready(const Stream& stream) const;
  bool step(Lock& lock);
  void finish(Stream& stream);
  void drag(int device, Kind kind, std::chrono::steady_clock::duration taken) const;

  Options options_;
  Memory memory_;
  Counts counts_;
  Faults faults_;
  Order order_;
  GridRunner grids_;
  WorkLog work_log_;
  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Stream>> legacy_;  ///< by device
  std::vector<cudaError_t> lost_;
  std::vector<std::shared_ptr<Capture>> captures_;
  std::uint64_t numbers_ = 0;
  std::size_t queued_ = 0;
  int waiting_ = 0;
  bool stopping_ = false;
  std::shared_ptr<Stream> running_;  ///< whose first operation is under way
  std::chrono::steady_clock::time_point last_queued_{}, needed_until_{};
  std::thread thread_;
};

/// The calling thread's GPU, as cudaSetDevice chose it.
int& current_device() noexcept;
/// The calling thread's last error; returns `error`.
cudaError_t note(cudaError_t error) noexcept;

}  // namespace emulation
