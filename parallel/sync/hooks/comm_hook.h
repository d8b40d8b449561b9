// How a bucket of gradients is added up over the ranks: what compresses them, or exchanges them in another
// way, stands in the place of Communicator::all_reduce.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "collectives/communicator.h"
#include "parallel/sync/buckets.h"
#include "runtime/device/device.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// A bucket that is full. It holds gradients divided by the number of ranks; padding between them is zero at
/// first and nobody's.
struct GradBucket {
  MemorySpan span;                        ///< its memory outlives the work
  const std::shared_ptr<Device>& device;  ///< where it is, for what is kept beyond the work
  std::size_t index = 0;                  ///< counts buckets; the same on all ranks, like `label`
  std::string_view label;                 ///< of its collectives; lives until the call returns
  const BucketLayout& layout;
  std::span<const GradientSlot> slots;  ///< of all buckets; layout and slots outlive the work
};

/// One rank's, used by one thread at a time; the same on all ranks. What it remembers from step to step is
/// part of the state that a run resumes from.
class CommHook {
 public:
  virtual ~CommHook() = default;

  /// Begins to add `bucket` up over the ranks of `communicator`, in place, as all_reduce does. Works are
  /// waited for in the order of the buckets, when all have begun.
  virtual std::unique_ptr<Work> begin(Communicator& communicator, const GradBucket& bucket) = 0;

  /// Whether anything is remembered.
  virtual bool is_stateful() const noexcept { return false; }
  /// Before the first bucket, with loss scaling: on_step_outcome() follows each step's works, and only then
  /// is it known whether the step is made.
  virtual void await_step_outcomes() {}
  /// Where `skipped`, float32 [1], is not 0 on the device, the step is not made and not remembered. The same
  /// on all ranks.
  virtual void on_step_outcome(const Tensor& /*skipped*/) {}
  /// Collective, between steps. Makes what is remembered equal on all ranks, so that the next steps exchange
  /// the same sums, within rounding. Throws PeerError.
  virtual void sync_state(Communicator& /*communicator*/, const Deadline& /*deadline*/) {}
  /// What is remembered, after sync_state(): sharing memory, by names of its own.
  virtual NamedTensors state() const { return {}; }
  /// Before the first bucket: what state() gave, of any number of ranks, on any device. What does not fit the
  /// gradients that come is forgotten.
  virtual void load(NamedTensors /*state*/) {}
};

}  // namespace dtrain
