// The gradients of a network where a batch is cut into parts (virtual workers): those of the part in work,
// and behind the last one the sums over all parts of all ranks, along one fixed tree (FixedTreeReducer).
//
//     FixedTreeGradients gradients(communicator, device, network, 8);
//     for (int part = 0; part < micro_batches_of(8, rank, ranks).count(); ++part) {
//       gradients.begin_part(true);
//       …                                          // its backward
//       gradients.end_part();
//     }
//     gradients.finish(deadline);
//     gradients.assign();                            // parameters have the sums
#pragma once

#include <memory>
#include <vector>

#include "parallel/sync/bucket_gradient.h"
#include "parallel/sync/fixed_tree_reducer.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// One rank's. Used by one thread; ranks call it alike.
class FixedTreeGradients {
 public:
  /// Of the parameters of `network` that learn; it is borrowed, like `communicator`. Sums are formed on
  /// `device`, wherever parameters are. `buckets`: the same on all ranks; any gives the same bits. Throws
  /// UsageError where there are fewer parts than ranks, and for a network that does not learn.
  FixedTreeGradients(Communicator& communicator, std::shared_ptr<Device> device, const Module& network,
                     int parts, const BucketOptions& buckets = {});
  ~FixedTreeGradients();
  FixedTreeGradients(const FixedTreeGradients&) = delete;
  FixedTreeGradients& operator=(const FixedTreeGradients&) = delete;

  /// Before a part's backward, which writes gradients instead of adding to them; it is summed up, and
  /// exchanged, where it is to.
  void begin_part(bool exchange);
  void end_part();
  /// After the last part of a step that exchanges. Throws PeerError.
  void finish(const Deadline& deadline);
  /// After finish(): the sums are the parameters' gradients; what no part used has none. Waits for the device
  /// where this rank left a parameter out.
  void assign();

  /// The traffic of a step, with zeros.
  void exchange_alone(const Deadline& deadline);
  /// Bytes this rank sent and received so far.
  std::uint64_t bytes() const noexcept { return reducer_->bytes(); }

 private:
  std::unique_ptr<FixedTreeReducer> make_reducer() const;
  void attach(std::size_t index);
  /// The reducer's slot of a parameter; the first one says which parameters were used.
  static std::size_t slot_of(std::size_t index) noexcept { return index + 1; }
  /// Hands what the part in work used to the reducer.
  void announce_used();
  UsedParameters used_by_any() const;

  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  int parts_;
  BucketOptions buckets_;
  NamedTensors parameters_;  ///< in the network's order
  std::vector<BucketGradient> gradients_;
  std::unique_ptr<FixedTreeReducer> reducer_;
  std::unique_ptr<FixedTreeReducer>
      idle_;                 ///< the same buckets, for exchange_alone(); made when first needed
  UsedParameters used_;      ///< by any part of this rank, in this step
  bool exchanging_ = false;  ///< what is ready belongs to a step that is shared
};

/// What a network remembers of its batches (running statistics), put back where the first part left it: as in
/// data parallelism it is what rank 0 did.
class FirstPassBuffers {
 public:
  /// After each part's forward, with its number here and how many there are.
  void after_forward(const Module& network, std::size_t part, std::size_t count);
  /// After the last one.
  void put_back();

 private:
  NamedTensors buffers_, after_first_;
};

}  // namespace dtrain
