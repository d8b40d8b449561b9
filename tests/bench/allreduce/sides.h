// The two sides of the comparison: a float32 sum over the ranks, blocking.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "collectives/factory.h"

namespace dtrain::bench {

class Side {
 public:
  virtual ~Side() = default;
  virtual void sum(float* data, std::size_t count) = 0;
};

std::unique_ptr<Side> make_ours(Communicator& communicator);
/// gloo::allreduce (its ring, the default) or MPI_Allreduce. `folder` is empty and shared by the ranks;
/// `address` is this machine's.
std::unique_ptr<Side> make_raw_gloo(int rank, int size, const std::string& folder,
                                    const std::string& address);
std::unique_ptr<Side> make_raw_mpi();

}  // namespace dtrain::bench
