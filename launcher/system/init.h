// What process 1 of a container or a PID namespace owes the others there. See
// docs/decisions/047-a-worker-is-a-tree.md.
#pragma once

namespace dtrain::launcher {

/// As process 1: forks, stays behind as the namespace's init, which reaps every orphan and passes signals on,
/// and ends with the child's exit code; returns in the child only. In any other process it returns at once.
/// To be called before there are threads. Throws SystemError.
void leave_process_one();

}  // namespace dtrain::launcher
