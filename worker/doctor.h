// What the checks of `dtrain doctor` say; one file looks at this machine, another at its way to others.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/error.h"

namespace dtrain {

enum class Verdict { good, note, bad };

struct Finding {
  std::string subject;
  Verdict verdict = Verdict::good;
  std::string text;  ///< what was found
  std::string fix;   ///< what to do; empty when all is well
};

/// A check that cannot even run is a finding too: its error, and `fix`.
template <class Check>
Finding guarded(const std::string& subject, const std::string& fix, Check check) {
  try {
    return check();
  } catch (const Error& error) {
    return {subject, Verdict::bad, error.what(), fix};
  }
}

/// NVIDIA's driver, the CUDA module (built when `built_cuda`) with its libraries as built and as loaded, and
/// each visible GPU. Where there is none it says so, as a note.
std::vector<Finding> examine_gpus(bool built_cuda, bool built_nccl);

/// Interfaces, the way to rank 0 and its port, the token, the clock, the MPI module, mpirun, Slurm and munge.
/// Takes a few seconds at most, when names do not resolve.
std::vector<Finding> examine_cluster(const Environment& environment);

}  // namespace dtrain
