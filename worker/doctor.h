// What the checks of `dtrain doctor` say; files look at this machine, its GPUs, its way to others, and a
// whole job.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
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

/// All checks of this machine and of its way to others, data set and `run_dir` included. `data_dir`: empty:
/// where Debian's package installs the data set.
std::vector<Finding> examine_machine(const std::string& run_dir, const std::string& data_dir,
                                     const Environment& environment);

struct JobExamination {
  std::string run_dir, data_dir;
  double seconds = 2;  ///< for which matrix products are timed
  Duration timeout = std::chrono::minutes(5);
  bool json = false;
  bool gate = false;  ///< print nothing, and throw Error with the reason on a node that is unfit
};

/// Collective among the workers of a job: each examines and measures its machine, rank 0 prints one table.
/// Its exit code is that of the worst; the others' is ok. Throws PeerError.
ExitCode examine_job(const JobExamination& wanted, const Environment& environment);

}  // namespace dtrain
