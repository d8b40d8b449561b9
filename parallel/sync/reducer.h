// Averages gradients over the ranks while backward continues. Gradients live in buckets; a bucket whose
// gradients are all final is divided by the world size and all-reduced, strictly in bucket order on every
// rank.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/sync/hooks/comm_hook.h"
#include "runtime/device/device.h"
#include "runtime/device/view.h"

namespace dtrain {

struct ReducerOptions {
  BucketOptions buckets = {};
  /// Null: Communicator::all_reduce. The same on all ranks.
  std::shared_ptr<CommHook> exchange = nullptr;
  /// The order in which gradients arrive, where it is known; empty: the reverse of the slots. The same on all
  /// ranks.
  std::vector<std::size_t> arrival_order = {};
  /// Whose gradients they are, for errors: "the module with conv1.weight to fc3.bias".
  std::string owner = "the module";
  /// Where DataParallel has its buckets: the communicator's device. Null: that of the first parameter.
  std::shared_ptr<Device> device = nullptr;
};

/// What the reducer did so far. `exposed` is the time finish() had to wait; `window` runs from the start of a
/// step's first all-reduce to the end of its last. What lies in the window but is not exposed was hidden
/// behind backward.
struct ReducerStats {
  std::uint64_t steps = 0;
  std::uint64_t bytes = 0;  ///< all-reduced
  Duration window{};
  Duration exposed{};
};

/// A step: gradients are written to their views, mark_ready() for each as it becomes final, finish(). With
/// accumulation, the passes before the last run between set_sync(false) and set_sync(true) and only add to
/// the views. Used by one thread at a time. After a PeerError the reducer is as dead as its communicator.
class Reducer {
 public:
  /// `communicator` is borrowed; memory comes from `device`. Every rank passes the same slots and options.
  /// Throws UsageError when the arrival order is no permutation of the slots.
  Reducer(Communicator& communicator, std::shared_ptr<Device> device, std::vector<GradientSlot> slots,
          ReducerOptions options = {});
  /// Waits (for at most seconds) until nothing is under way in its memory.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  std::size_t slot_count() const noexcept { return slots_.size(); }
  std::size_t bucket_count() const noexcept { return buckets_.size(); }
  const BucketLayout& layout(std::size_t bucket) const noexcept { return buckets_[bucket].layout; }
  /// Where slot `index` has its gradient: one-dimensional, dense, in the bucket; stays there. Zero at first.
  View gradient(std::size_t index) const;
  /// The bucket's memory, shared: keeps it alive beyond the reducer.
  std::shared_ptr<void> memory_of(std::size_t index) const;

  /// While false, mark_ready() only remembers that the slot has a gradient.
  void set_sync(bool sync) noexcept { sync_ = sync; }
  bool sync() const noexcept { return sync_; }

  /// The gradient of slot `index` is final: its bucket may go. Starts all-reduces, never waits. Throws
  /// UsageError when the slot was ready before in this step.
  void mark_ready(std::size_t index);

  /// Ends the step: slots that were not ready in it (nor in an unsynchronised pass before) count as zero,
  /// what has not started starts, and all buckets hold the average over the ranks when it returns. Throws
  /// PeerError.
  void finish(const Deadline& deadline);

  /// True when slot `index` had a gradient on this rank in the step that finish() ended.
  bool was_used(std::size_t index) const { return used_[index]; }

  const ReducerStats& stats() const noexcept { return stats_; }

 private:
  struct Bucket {
    BucketLayout layout;
    std::string label;  // its number and tensors, for errors and traces
    std::shared_ptr<void> memory;
    std::size_t missing = 0;  // slots not ready
    std::unique_ptr<Work> work;
  };
  struct Place {
    std::size_t bucket = 0;
    std::size_t offset = 0;  // elements
  };

  void launch_full_buckets();
  void launch(std::size_t index);
  void begin_step();

  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<CommHook> exchange_;
  std::string owner_;
  std::vector<GradientSlot> slots_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  std::vector<bool> ready_;    // this step, synchronised
  std::vector<bool> touched_;  // since the last finish()
  std::vector<bool> used_;     // in the last finished step
  std::size_t next_ = 0;       // first bucket not launched
  bool sync_ = true;
  TimePoint first_launch_{};
  ReducerStats stats_;
};

}  // namespace dtrain
