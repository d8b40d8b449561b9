// Where this launcher stands among those of the other nodes: options completed by what mpirun, Slurm,
// Kubernetes and their like put into the environment. Pure.
#pragma once

#include <string>
#include <vector>

#include "cluster/detect/detect.h"
#include "launcher/plan/options.h"
#include "runtime/base/environment.h"

namespace dtrain::launcher {

/// One value and how it was found.
struct Explanation {
  std::string name, value, how;
};

struct NodePlacement {
  JobSystem system = JobSystem::none;
  std::string host;  ///< this machine's name in reports
  NodeRange nodes;
  int spares = 0;                  ///< standby launchers, in addition to the nodes
  std::optional<int> node_rank;    ///< absent: the rendezvous gives one
  std::string master_addr;         ///< empty: the MPI exchange tells
  std::uint16_t master_port = 0;   ///< 0: the first node picks a free one
  Endpoint rendezvous;             ///< where launchers meet; only with many()
  bool ask_mpi = false;            ///< address and secret come from the MPI exchange
  std::vector<std::string> hosts;  ///< by node_rank, where they are known
  std::vector<Explanation> explanations;
  std::vector<std::string> notes;  ///< what a user may have overlooked

  bool many() const { return nodes.most + spares > 1; }
};

/// An explicit option wins over MASTER_ADDR and MASTER_PORT, those over the batch system, that over the
/// defaults. RANK and WORLD_SIZE are a worker's and not looked at; with one node nothing is. `has_token`
/// tells whether the job's secret is known already. Throws UsageError naming the option that is missing or
/// contradicts what was found, and the command to use when several launchers share a node.
NodePlacement settle_placement(const LaunchOptions& options, const Environment& environment,
                               const Machine& machine, bool has_token);

/// What --explain prints: a line a value.
std::string explanation_text(const NodePlacement& placement);

/// Variables that mpirun has set for this launcher, which workers must not see: they would take themselves
/// for its ranks. What users set for Open MPI itself (OMPI_ALLOW_RUN_AS_ROOT, OMPI_MCA_btl) is not among
/// them.
std::vector<std::string> mpi_variables(const Environment& environment, const Environment& before_mpi = {});

}  // namespace dtrain::launcher
