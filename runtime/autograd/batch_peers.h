// The seam through which batch normalisation reaches the other parts of a batch that is spread over
// processes. The runtime knows no peers: the library that does implements this (parallel/sync/batch_peers.h).
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// The ranks that hold the parts of a batch. Every rank makes the same calls in the same order. Both calls
/// return when the result is usable on the device's compute stream, and throw PeerError when a peer is lost.
class BatchPeers {
 public:
  virtual ~BatchPeers() = default;

  /// How many parts there are, this one included.
  virtual int size() const noexcept = 0;
  /// `all` [size, n] receives everyone's `mine` [n] in rank order. Both dense, of one dtype and device.
  virtual void all_gather(const Tensor& mine, const Tensor& all) = 0;
  /// `values`, dense, become their sums over all ranks, the same bits on every rank.
  virtual void add_up(const Tensor& values) = 0;
};

}  // namespace dtrain
