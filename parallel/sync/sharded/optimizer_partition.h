// The optimizer's state, partitioned among ranks that hold the same parameters, by whole parameters: the
// state of each exists on its owner alone, which updates it and broadcasts it to the others (torch's
// ZeroRedundancyOptimizer). Where ranks hold slices or stages, or parameters on several devices, this is what
// --shard optimizer is; decision 043 says why not ranges of elements.
//
//     OptimizerPartition partition(network.named_parameters(), dp_group);
//     auto optimizer = make_sgd(partition.own());
//     …                                     // backward, and gradients averaged over the copies
//     optimizer->step();
//     partition.broadcast_updates(Deadline::after(std::chrono::seconds(30)));
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// The owner of each of `parameters` among `ranks`: the largest first, each to whom has the fewest bytes yet.
std::vector<int> partition_by_bytes(const NamedTensors& parameters, int ranks);

/// One rank's. Used by one thread.
class OptimizerPartition {
 public:
  /// `ranks` is borrowed; all of them pass the same dense `parameters`, on the same devices of each process.
  /// Throws UsageError where there are fewer parameters than ranks.
  OptimizerPartition(const NamedTensors& parameters, Communicator& ranks);

  /// What this rank updates, in the order of all; at least one.
  const NamedTensors& own() const noexcept { return own_; }
  /// Everybody's, in order.
  const NamedTensors& all() const noexcept { return all_; }
  /// Collective, after the update: every rank gets each parameter's values from its owner. Throws PeerError.
  void broadcast_updates(const Deadline& deadline);

 private:
  /// What travels at once: parameters of one owner, on one device. Several are packed.
  struct Bucket {
    int owner = 0;
    std::size_t bytes = 0;
    std::vector<std::size_t> parameters = {};
    Tensor packed = {};  ///< [elements]; undefined where one parameter goes as it is
  };

  void lay_out(const std::vector<int>& owners);
  void pack(const Bucket& bucket) const;
  void unpack(const Bucket& bucket) const;

  Communicator& ranks_;
  NamedTensors all_, own_;
  std::vector<Bucket> buckets_;
};

}  // namespace dtrain
