// Data parallelism for a module: equal parameters at the start, averaged gradients after each step.
#pragma once

#include <memory>

#include "parallel/sync/bucket_gradient.h"
#include "parallel/sync/reducer.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// Wraps `module` (borrowed, must outlive this, like `communicator`): its gradients live in buckets from now
/// on. Buckets are on one device; the gradients of parameters on another GPU live there, are copied to their
/// bucket as they become final, and back when it is shared. A step: zero_grad, forward, backward, finish(),
/// optimizer. Every rank constructs and calls it alike; local batches may use different parts of the module.
/// Used by one thread at a time.
class DataParallel {
 public:
  /// Collective: checks that names, shapes and dtypes are those of rank 0 (UsageError on every rank
  /// otherwise) and copies rank 0's parameters and buffers to all. Throws PeerError.
  DataParallel(Communicator& communicator, Module& module, const Deadline& deadline,
               ReducerOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// While it lives, backward only accumulates locally.
  class NoSync {
   public:
    explicit NoSync(Reducer& reducer) : reducer_(reducer), before_(reducer.sync()) {
      reducer_.set_sync(false);
    }
    ~NoSync() { reducer_.set_sync(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Reducer& reducer_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*reducer_); }

  /// After the last backward of a step: returns when every parameter that some rank used has the average
  /// gradient; a rank that did not use it counts as zero. What no rank used has none. Waits for the device
  /// where this rank left a parameter out. Throws PeerError.
  void finish(const Deadline& deadline);
  /// Whether the last finish() had to ask, and wait for, what the others used.
  bool asked_peers() const noexcept { return asked_peers_; }

  /// Collective: copies rank 0's buffers (running statistics) to all. PyTorch's DDP does this before every
  /// forward pass; training never reads them, so before evaluation and saving has the same effect. Throws
  /// PeerError.
  void sync_buffers(const Deadline& deadline);

  const Reducer& reducer() const noexcept { return *reducer_; }
  /// A reducer of the same slots and options whose buckets are not computed: to measure only the exchange.
  std::unique_ptr<Reducer> make_idle_reducer() const;

 private:
  void attach(std::size_t index);
  std::vector<GradientSlot> slots() const;
  /// The reducer's slot of a parameter; the first one says which parameters were used.
  static std::size_t slot_of(std::size_t index) noexcept { return index + 1; }
  /// A gradient is there: final, in a step that exchanges.
  void take(std::size_t index);
  void copy_in(std::size_t index);
  /// Hands what this rank used to the reducer.
  void announce_used();
  /// Of `parameters_`, in the step that was exchanged.
  UsedParameters used_by_any();

  Communicator& communicator_;
  ReducerOptions options_;
  NamedTensors state_;  // everything that must be equal
  NamedTensors buffers_;
  NamedTensors parameters_;  // with gradients, in the module's order
  NamedTensors alone_;       // those on other GPUs that nobody shares, since there is one rank
  std::vector<BucketGradient> gradients_;
  std::vector<bool> copied_in_;  // in this step
  UsedParameters used_;          // by this rank, in this step
  std::size_t ready_ = 0;        // gradients that are final
  bool announced_ = false, asked_peers_ = false;
  std::shared_ptr<Device> home_;  // of the buckets
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace dtrain
