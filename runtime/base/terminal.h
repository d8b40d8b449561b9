// Whether a person looks on, or a file.
#pragma once

#include "runtime/base/environment.h"

namespace dtrain {

/// Whether what is written to `fd` appears on a terminal. Open MPI gives each process a terminal of its own
/// and passes on what comes, wherever that goes: there the output of mpirun decides (which on other machines
/// than its own is never a terminal).
bool shows_on_terminal(int fd, const Environment& environment);

}  // namespace dtrain
