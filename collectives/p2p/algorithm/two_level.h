// Collectives in two levels, for groups that span hosts: contributions are added up within each host as far
// as the tree of sums allows (sum_tree.h), only those sums cross to other hosts, once, and results are handed
// on within each host. Ranks of two hosts are paired, so that each rank moves its share of what crosses. The
// same bits as without levels.
#pragma once

#include "collectives/communicator.h"
#include "collectives/p2p/algorithm/context.h"
#include "collectives/p2p/algorithm/topology.h"

namespace dtrain::p2p {

/// Used for one call. `topology` is borrowed. With h hosts of r ranks whose sums are whole (ranks in blocks
/// of a power of two) 2·(h-1)/h of an all_reduce's bytes leave each host; more where a host's ranks are not
/// neighbours in the tree.
class TwoLevel {
 public:
  TwoLevel(const AlgorithmContext& context, const Topology& topology)
      : context_(context), topology_(topology), rank_(context.transport.rank()) {}

  void all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op);
  /// As all_reduce(), for little data: all hosts' sums go to every host's first rank, in three steps.
  void all_reduce_small(void* data, std::size_t count, DType dtype, ReduceOp op);
  /// `part` elements a rank; `input` has size·part and is only read.
  void reduce_scatter(const void* input, void* output, std::size_t part, DType dtype, ReduceOp op);
  /// `bytes` a rank; this rank's own are in their place already.
  void all_gather(void* output, std::size_t bytes);
  /// Leaves phase 1 of the call's tags for a barrier.
  void broadcast(void* data, std::size_t bytes, int root);
  /// In place on `root`; elsewhere `data` is only read. Leaves phase 3 for a barrier.
  void reduce(void* data, std::size_t count, DType dtype, ReduceOp op, int root);

 private:
  std::vector<Part> equal_parts(std::size_t each) const;
  std::vector<Part> cut_in_parts(std::size_t count) const;
  std::vector<Part> cut_among_host(int rank, std::size_t count) const;
  std::vector<Part> all_to(int rank, std::size_t count) const;

  const AlgorithmContext context_;
  const Topology& topology_;
  const int rank_;
};

}  // namespace dtrain::p2p
