// Where this process stands among its peers, read from what schedulers and launchers put into the
// environment. Pure: the environment, the host's name, files and what commands print are arguments, so every
// scheduler can be tested anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/environment.h"

namespace dtrain {

/// What started this process, as far as the environment shows.
enum class JobSystem {
  none,
  environment,  ///< RANK and WORLD_SIZE are set
  openmpi,
  hydra,  ///< MPICH's and Intel MPI's launcher
  slurm,
  pmi,
  pmix,
  lsf,
  pbs,
  flux,
  kubeflow,
  kubernetes,
};

/// The name above.
std::string_view name_of(JobSystem system) noexcept;

/// What is known; whatever the system does not tell is absent. Ranks count from 0. Under a scheduler that
/// starts one launcher a node, rank and world_size are the launchers'.
struct Placement {
  JobSystem system = JobSystem::none;
  std::optional<int> nnodes;
  std::optional<int> node_rank;
  std::optional<int> nproc_per_node;  ///< on this node
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::optional<std::string> master_addr;
  std::optional<std::uint16_t> master_port;
  std::vector<std::string> hosts;  ///< of all nodes by node_rank, where the system tells
  /// For every field above by its name, and for some that are absent: how it is known, or why not.
  std::map<std::string, std::string, std::less<>> explanations;
};

/// What detection may want to know beyond the environment.
struct Machine {
  std::string hostname;  ///< as gethostname gives it; empty: not known
  /// A whole file, or nothing when it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file = [](const std::string&) {
    return std::optional<std::string>();
  };
  /// What a command of the batch system prints, or nothing when it fails or does not answer in time.
  std::function<std::optional<std::string>(const std::vector<std::string>& argv)> output_of =
      [](const std::vector<std::string>&) { return std::optional<std::string>(); };
};

/// This machine, for real.
Machine this_machine();

/// Decides by the first that is present: RANK with WORLD_SIZE; LSF's jsrun; Open MPI; hydra; a task of
/// Flux; a Slurm step; PMI; PMIx; Kubeflow; Kubernetes' indexed job; PBS. MASTER_ADDR and MASTER_PORT win
/// over what the system says. Throws UsageError naming the variable when a value is impossible or two
/// contradict each other.
Placement detect(const Environment& environment, const Machine& machine);

/// What the launcher of an MPI program (Open MPI, hydra, PMI) says of this very process: rank and world_size,
/// or neither when there is no such launcher. MPI itself is not touched. Throws UsageError naming the
/// variable when a value is impossible.
Placement detect_mpi(const Environment& environment);

/// The placement for people: one line a field, each with how it is known.
std::string explain(const Placement& placement);

}  // namespace dtrain
