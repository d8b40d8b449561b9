// The one-machine labs of cluster/lab for tests: they end with the object, and by themselves if the test is
// killed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {

/// A Slurm cluster on this machine.
class SlurmLab {
 public:
  /// Why there can be none here; nothing when there can.
  static std::optional<std::string> unavailable();

  /// Throws Error with what the script printed when it does not start.
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
