// The backends as the factory sees them; each is in its own folder, with a twin for builds without it.
#pragma once

#include <memory>

#include "collectives/factory.h"

namespace dtrain {

/// Always there: it needs nothing but libcrypto, as the store does.
std::unique_ptr<Communicator> make_tcp_communicator(const Bootstrap& bootstrap, Log& log);

bool gloo_is_built() noexcept;
std::unique_ptr<Communicator> make_gloo_communicator(const Bootstrap& bootstrap, Log& log);

/// MPI lives in a module of its own, which is loaded when this is called. Throws UsageError when there is
/// none.
std::unique_ptr<Communicator> make_mpi_communicator(const Bootstrap& bootstrap, Log& log);

/// NCCL lives in the CUDA module, which is loaded when this is called. Throws UsageError when there is none.
std::unique_ptr<Communicator> make_nccl_communicator(const Bootstrap& bootstrap, Log& log);

/// Ranks that are threads of this process; `bootstrap.rendezvous` is set.
std::unique_ptr<Communicator> make_thread_communicator(const Bootstrap& bootstrap, Log& log);

std::unique_ptr<Communicator> make_self_communicator();

}  // namespace dtrain
