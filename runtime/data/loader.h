// Batches, read ahead of use. What is in a batch depends only on seed, epoch and the order handed to start(),
// never on how many threads there are or how they are scheduled.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/spans.h"
#include "runtime/data/batch_layout.h"
#include "runtime/data/buffer_pool.h"
#include "runtime/data/torch_draws.h"
#include "runtime/device/device.h"

namespace dtrain {

struct LoaderOptions {
  std::int64_t batch_size = 1;
  int threads = 0;         ///< 0: next() reads in the caller's thread
  int prefetch = 2;        ///< batches read ahead of the one in use; ≥ 1; without threads it has no meaning
  bool drop_last = false;  ///< leave out the last batch of an order when it is not full
  std::vector<std::string> channels_last = {};  ///< fields of shape [C, H, W] that are to lie pixel by pixel
  bool bytes = false;  ///< fields that have bytes (Source::has_bytes) come as u8; to_tensors divides
  /// Samples that have lengths of their own (Field::length_field) are padded to the most rows there may be,
  /// not to their batch's longest one: all batches then have one shape.
  bool pad_to_most = false;
  std::uint64_t seed = 0;  ///< of the generators that sources read with
  /// Sources read with the numbers of PyTorch's DataLoader of so many workers instead (TorchDraws). A batch
  /// then waits for the one before it of the same worker, and those before the first are read and dropped.
  std::optional<int> torch_workers = std::nullopt;
  SpanRecorder* spans = nullptr;  ///< where reading a batch leaves a span; borrowed; null: nowhere
};

/// One thread uses it; its own threads stay inside. They block all signals.
class Loader {
 public:
  /// Starts the threads; nothing is read before start(). Throws UsageError for options out of range and for a
  /// source whose fields are not well-formed, SystemError when a thread cannot be started, DeviceError when
  /// there is no memory.
  Loader(std::shared_ptr<const Source> source, std::shared_ptr<Device> device, const LoaderOptions& options);
  /// Stops the threads after the sample each is reading. Batches handed out stay valid.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Begins epoch number `epoch` (≥ 0): batch k holds the samples order[k · batch_size …], each read with the
  /// generator of (seed, epoch, index). `first_batch` skips without reading, to resume in mid-epoch. What was
  /// left of an epoch before is dropped. Throws UsageError for an index outside the source, a negative epoch
  /// or a first batch outside [0, batches].
  void start(std::vector<std::int64_t> order, std::int64_t epoch, std::int64_t first_batch = 0);
  /// The same with batches that differ in size: batch k holds the places [ends[k - 1], ends[k]) of `order`, 1
  /// to batch_size of them, and the last ends with it. Throws UsageError for ends that do not do that.
  void start(std::vector<std::int64_t> order, std::vector<std::int64_t> ends, std::int64_t epoch);

  /// Batches in the whole order now in use, those skipped included; 0 before start().
  std::int64_t batches() const noexcept { return batches_; }
  /// Number of the batch that next() returns next; batches() at the end. Save this to resume.
  std::int64_t position() const noexcept { return next_; }

  /// The next batch; nothing at the end of the order. Throws what reading it threw (again at every further
  /// call), with source and sample named (read_sample); Error when the source's fields have changed; or Error
  /// when it is not ready by `deadline`, which loses nothing: call again.
  std::optional<Batch> next(const Deadline& deadline);

 private:
  struct Batches {
    std::vector<std::int64_t> order;
    std::vector<std::int64_t> ends;          ///< empty: every batch_size
    std::shared_ptr<TorchDraws> draws = {};  ///< null: each sample has its own
  };
  using Order = std::shared_ptr<const Batches>;
  // A batch on its way: waiting for its thread, or read, or failed.
  struct Staged {
    bool ready = false;
    std::shared_ptr<std::byte> memory;
    std::exception_ptr failure;
  };
  struct Job {
    std::uint64_t start = 0;
    std::int64_t epoch = 0;
    std::int64_t number = 0;
    Order order;
    std::shared_ptr<std::byte> memory;
  };

  void check_order(std::span<const std::int64_t> order, std::int64_t epoch) const;
  void begin(Batches batches, std::int64_t count, std::int64_t epoch, std::int64_t first_batch);
  void start_threads();
  void shut_down() noexcept;
  void work() noexcept;
  bool can_take() const noexcept;
  void publish(Job& job, std::exception_ptr failure) noexcept;
  void read(const Job& job, bool interruptible) const;
  void read_and_drop(std::int64_t end);
  std::shared_ptr<std::byte> read_here();
  std::shared_ptr<std::byte> wait_for_staged(const Deadline& deadline);
  std::span<const std::int64_t> indices_of(const Batches& batches, std::int64_t number) const noexcept;
  std::int64_t window_end() const noexcept;
  Staged& staged(std::int64_t number) noexcept;
  Batch make_batch(std::int64_t number, std::shared_ptr<std::byte> memory) const;

  const std::shared_ptr<const Source> source_;
  const LoaderOptions options_;
  const BatchLayout layout_;  // of a piece of the pool
  const std::shared_ptr<BufferPool> pool_;

  std::mutex mutex_;  // guards all below, which only the user's thread writes unless said otherwise
  std::condition_variable work_, ready_;
  std::uint64_t start_ = 0;  // number of start() calls: tells work left from an order before
  std::int64_t epoch_ = 0;
  Order order_;
  std::int64_t batches_ = 0;
  std::int64_t next_ = 0;       // batch the user gets next
  std::int64_t next_job_ = 0;   // batch a thread takes next (threads write)
  bool failed_ = false;         // a batch of this order failed: nothing more is taken (threads write)
  std::vector<Staged> window_;  // batch k in slot k mod prefetch (threads write)
  std::atomic<std::uint64_t> live_start_ = 0;  // start_, or 0 when shutting down; seen while reading
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dtrain
