// Collectives and messages as runs that never wait: each call of go_on() moves as far as the peers allow.
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>

#include "emulation/machine/stream.h"
#include "emulation/nccl/segment.h"

namespace emulation {

enum class Transfer { all_reduce, reduce, all_gather, reduce_scatter, broadcast, send, receive };

/// One call of a program.
struct Request {
  Transfer kind = Transfer::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  ///< elements: of a rank's part where there are parts
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  ///< root, or whom a message is for or from
};

/// What a communicator's runs look at.
struct Link {
  std::shared_ptr<Segment> segment;
  int rank = 0;
  std::atomic<bool> aborted = false;
  std::atomic<int> under_way = 0;
};

/// A run of `requests`, which were grouped into one: messages move together, collectives in their order.
std::function<Progress()> start(std::shared_ptr<Link> link,
                                std::shared_ptr<const std::vector<Request>> requests);

}  // namespace emulation
