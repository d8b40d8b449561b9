// MPI's life in this process: it can be initialised once and finalised once, so the code that did the first
// does the second.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

namespace dtrain {

/// Shared by all mpi communicators of a program. Initialises MPI unless the program has, and finalises it
/// when the last of them goes, if it was the one to initialise and no group has failed: MPI_Finalize waits
/// for all ranks and would hang for a dead one (without it, mpirun reports the rank as failed, which it is).
class MpiRuntime {
 public:
  /// Throws UsageError when MPI is finalised already or cannot be called from several threads, MpiError.
  MpiRuntime();
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  void mark_failed() noexcept { failed_ = true; }
  bool failed() const noexcept { return failed_; }

 private:
  bool owner_ = false;
  std::atomic<bool> failed_ = false;
};

/// An MPI communicator that is freed with its last user, unless a group has failed (freeing is collective
/// too).
class OwnedComm {
 public:
  /// Takes `comm`, which returns errors instead of aborting from now on.
  OwnedComm(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm);
  ~OwnedComm();
  OwnedComm(const OwnedComm&) = delete;
  OwnedComm& operator=(const OwnedComm&) = delete;
  MPI_Comm get() const noexcept { return comm_; }

 private:
  std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm comm_;
};

}  // namespace dtrain
