// Where jobs run: the cores and GPUs of this machine in equal shares. Pure but for reading the machine.
#pragma once

#include <string>
#include <vector>

#include "cluster/detect/cpus.h"
#include "runtime/base/environment.h"

namespace dtrain::sweep {

/// What jobs may be given.
struct MachineShare {
  CpuList cores;                  ///< that this process may run on
  int usable = 1;                 ///< of them, where the control group grants fewer
  std::vector<std::string> gpus;  ///< as CUDA_VISIBLE_DEVICES names them
};

/// One job's share.
struct Place {
  CpuList cores;                  ///< its workers are bound to these; empty: not bound
  std::vector<std::string> gpus;  ///< they see only these; empty: as the sweep does
};

/// This machine, as the sweep may use it.
MachineShare read_machine(const Environment& environment);

/// Places for jobs of `workers` workers each: `jobs` of them, or, where that is 0, as many as there are GPUs
/// or (with `on_gpus` false, or no GPU) cores for, at least one. All have the same number of cores, so that a
/// run's numbers do not depend on the place it gets: a share that is left over is left idle, and more jobs
/// than cores take turns. Throws UsageError when each of `jobs` cannot have a GPU for each of its workers.
std::vector<Place> make_places(const MachineShare& machine, bool on_gpus, int jobs, int workers);

}  // namespace dtrain::sweep
