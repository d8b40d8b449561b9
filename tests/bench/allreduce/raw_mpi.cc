#include <mpi.h>

#include "tests/bench/allreduce/sides.h"

namespace dtrain::bench {
namespace {

class RawMpi final : public Side {
 public:
  void sum(float* data, std::size_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
};

}  // namespace

std::unique_ptr<Side> make_raw_mpi() { return std::make_unique<RawMpi>(); }

}  // namespace dtrain::bench
