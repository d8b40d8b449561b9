#include "collectives/mpi/mpi_runtime.h"

#include "collectives/mpi/mpi_check.h"
#include "runtime/base/error.h"

namespace dtrain {

MpiRuntime::MpiRuntime() {
  int finalized = 0, initialized = 0, provided = MPI_THREAD_SINGLE;
  check(MpiResult{MPI_Finalized(&finalized)}, "MPI_Finalized");
  if (finalized != 0) {
    throw UsageError(
        "backend mpi: MPI is finalised already and cannot start again in this process; keep one mpi "
        "communicator alive "
        "for the whole run");
  }
  check(MpiResult{MPI_Initialized(&initialized)}, "MPI_Initialized");
  if (initialized != 0) {
    check(MpiResult{MPI_Query_thread(&provided)}, "MPI_Query_thread");
  } else {
    check(MpiResult{MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided)}, "MPI_Init_thread");
    owner_ = true;
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    throw UsageError(
        "backend mpi: expected MPI_THREAD_MULTIPLE, which this MPI does not support; initialise MPI with it, "
        "or "
        "use tcp");
  }
}

MpiRuntime::~MpiRuntime() {
  if (owner_ && !failed_) MPI_Finalize();
}

OwnedComm::OwnedComm(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm)
    : runtime_(std::move(runtime)), comm_(comm) {
  check(MpiResult{MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN)}, "MPI_Comm_set_errhandler");
}

OwnedComm::~OwnedComm() {
  if (!runtime_->failed()) MPI_Comm_free(&comm_);
}

}  // namespace dtrain
