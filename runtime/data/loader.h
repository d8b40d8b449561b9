// Batches, decoded ahead of use. What is in a batch depends only on the order handed to start(), never on how
// many threads there are or how they are scheduled.
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
#include "runtime/data/buffer_pool.h"
#include "runtime/data/dataset.h"
#include "runtime/device/device.h"

namespace dtrain {

/// Decoded samples in pinned host memory. Copies share the memory; it goes back to the loader when the last
/// copy (and every tensor that keeps `memory`) is gone, so hold on to it until copies to a device have
/// finished.
struct Batch {
  View inputs;                            ///< f32 [B, C, H, W], dense in the loader's layout
  View labels;                            ///< i64 [B]
  std::span<const std::int64_t> indices;  ///< B dataset indices, in the same order
  std::int64_t number = 0;                ///< place in the order: samples number · batch_size onwards
  std::shared_ptr<void> memory;           ///< owner of all of the above

  std::int64_t size() const noexcept { return labels.shape[0]; }
};

struct LoaderOptions {
  std::int64_t batch_size = 1;
  int threads = 0;   ///< 0: next() decodes in the caller's thread
  int prefetch = 2;  ///< batches decoded ahead of the one in use; ≥ 1; without threads it has no meaning
  bool drop_last = false;  ///< leave out the last batch of an order when it is not full
  PixelLayout layout = PixelLayout::chw;
  SpanRecorder* spans = nullptr;  ///< where decoding a batch leaves a span; borrowed; null: nowhere
};

/// One thread uses it; its own threads stay inside. They block all signals.
class Loader {
 public:
  /// Starts the threads; no batch is decoded before start(). Throws UsageError for options out of range,
  /// SystemError when a thread cannot be started, DeviceError when there is no memory.
  Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Device> device,
         const LoaderOptions& options);
  /// Stops the threads after the sample each is decoding. Batches handed out stay valid.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Begins an epoch: batch k holds the samples order[k · batch_size …]. `first_batch` skips without
  /// decoding, to resume in mid-epoch. What was left of an epoch before is dropped. Throws UsageError for an
  /// index outside the dataset or a first batch outside [0, batches].
  void start(std::vector<std::int64_t> order, std::int64_t first_batch = 0);

  /// Batches in the whole order now in use, those skipped included; 0 before start().
  std::int64_t batches() const noexcept { return batches_; }
  /// Number of the batch that next() returns next; batches() at the end. Save this to resume.
  std::int64_t position() const noexcept { return next_; }

  /// The next batch; nothing at the end of the order. Throws what decoding it threw (again at every further
  /// call), or Error when it is not ready by `deadline`, which loses nothing: call again.
  std::optional<Batch> next(const Deadline& deadline);

 private:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;
  // A batch on its way: waiting for its thread, or decoded, or failed.
  struct Staged {
    bool ready = false;
    std::shared_ptr<std::byte> memory;
    std::exception_ptr failure;
  };
  struct Job {
    std::uint64_t epoch = 0;
    std::int64_t number = 0;
    Order order;
    std::shared_ptr<std::byte> memory;
  };

  void start_threads();
  void shut_down() noexcept;
  void work() noexcept;
  bool can_take() const noexcept;
  void publish(Job& job, std::exception_ptr failure) noexcept;
  void decode(const Job& job, bool interruptible) const;
  std::shared_ptr<std::byte> decode_here();
  std::shared_ptr<std::byte> wait_for_staged(const Deadline& deadline);
  std::span<const std::int64_t> indices_of(const Job& job) const noexcept;
  std::int64_t window_end() const noexcept;
  Staged& staged(std::int64_t number) noexcept;
  Batch make_batch(std::int64_t number, std::shared_ptr<std::byte> memory) const;

  const std::shared_ptr<const Dataset> dataset_;
  const LoaderOptions options_;
  const std::size_t labels_offset_, indices_offset_;  // inside a piece of the pool
  const std::shared_ptr<BufferPool> pool_;

  std::mutex mutex_;  // guards all below, which only the user's thread writes unless said otherwise
  std::condition_variable work_, ready_;
  std::uint64_t epoch_ = 0;  // number of start() calls: tells work left from an order before
  Order order_;
  std::int64_t batches_ = 0;
  std::int64_t next_ = 0;       // batch the user gets next
  std::int64_t next_job_ = 0;   // batch a thread takes next (threads write)
  bool failed_ = false;         // a batch of this epoch failed: nothing more is taken (threads write)
  std::vector<Staged> window_;  // batch k in slot k mod prefetch (threads write)
  std::atomic<std::uint64_t> live_epoch_ = 0;  // epoch_, or 0 when shutting down; read while decoding
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dtrain
