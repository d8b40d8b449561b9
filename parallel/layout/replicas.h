// The state that ranks replicate, and whether it is equal: a flipped bit in one rank's memory, or a wrong
// sum, corrupts a run without any other sign.
#pragma once

#include "collectives/communicator.h"
#include "runtime/base/error.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// Tensors of which every rank of `group` has a copy, equal bit for bit between steps.
struct Replicas {
  Communicator* group = nullptr;  ///< null: nothing is held twice
  NamedTensors tensors;           ///< the same names in the same order on every rank
};

/// Ranks do not hold the same.
class ReplicaError : public Error {
 public:
  using Error::Error;
};

/// Collective over the group; waits for the device. Compares a CRC-32 of each tensor, as one number while all
/// are alike. Throws ReplicaError on every rank where they are not, naming the first such tensor and the
/// ranks that most others disagree with (both of two); PeerError.
void check_replicas(const Replicas& replicas, const Deadline& deadline);

}  // namespace dtrain
