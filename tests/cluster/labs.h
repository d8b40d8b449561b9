// The one-machine labs of cluster/lab for tests: they end with the object, and by themselves if the test is
// killed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {

/// This machine cannot run the lab, for the reason in the message: a test is to be skipped.
class LabUnavailable : public Error {
 public:
  using Error::Error;
};

/// A Slurm cluster on this machine.
class SlurmLab {
 public:
  /// Which program is missing; nothing when none is.
  static std::optional<std::string> unavailable();

  /// Throws LabUnavailable where no slurmd can run, Error when it does not start for another reason; both
  /// with what the script printed.
  SlurmLab(int nodes, int cpus);
  ~SlurmLab();
  SlurmLab(const SlurmLab&) = delete;
  SlurmLab& operator=(const SlurmLab&) = delete;

  /// The command line that runs `argv` (srun, sbatch, …) against the lab.
  std::vector<std::string> command(const std::vector<std::string>& argv) const;
  RunResult run(const std::vector<std::string>& argv, RunOptions options = {}) const;

 private:
  TempDir folder_;
  std::string lab_;
};

/// Hosts h0, h1, … with addresses of their own on this machine.
class NetnsLab {
 public:
  static std::optional<std::string> unavailable();

  explicit NetnsLab(int hosts);
  ~NetnsLab();
  NetnsLab(const NetnsLab&) = delete;
  NetnsLab& operator=(const NetnsLab&) = delete;

  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  /// The command line that runs `argv` on `host`; its process is the command's own.
  std::vector<std::string> command(int host, const std::vector<std::string>& argv) const;
  RunResult run(int host, const std::vector<std::string>& argv, RunOptions options = {}) const;
  /// `how`: "both", "in" or "out".
  void cut(int host, const std::string& how = "both") const;
  void heal(int host) const;

 private:
  std::string lab_;
};

}  // namespace dtrain::test
