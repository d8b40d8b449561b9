// Who runs what, where, with which environment: everything about a job that can be said before it starts.
// Pure, so that --dry-run shows exactly what would be done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/binding.h"
#include "launcher/plan/options.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/program.h"
#include "runtime/base/environment.h"

namespace dtrain::launcher {

/// What planning needs to know about this machine.
struct Hardware {
  std::vector<std::string> gpus;  ///< visible devices as CUDA_VISIBLE_DEVICES names them
  std::vector<std::optional<int>> gpu_numa_nodes;
  int xpus = 0;  ///< visible Intel GPUs, where they were asked for
  CpuLayout cpus;
  Environment before_mpi;  ///< in which mpirun was started, where it has started this launcher
};

/// Where one stream of a worker goes.
struct StreamPlan {
  bool console = true;  ///< shown by the launcher
  std::string file;     ///< relative to the attempt's log folder; empty: no file
};

struct WorkerPlan {
  int rank = 0;        ///< of a parameter server: its number, counted on from the workers' ranks
  int local_rank = 0;  ///< among the processes of this node; servers come last
  std::optional<int> server = std::nullopt;  ///< the parameter server's number; unset: a worker
  std::vector<std::string> argv;
  Environment environment;  ///< what is added to the inherited environment, attempt's part excluded
  std::string gpu;          ///< the device it is meant for, empty where there is none
  CpuList cpus;             ///< bound to these; empty: not bound
  StreamPlan out, err;
  std::string prefix;  ///< starts each of its lines on the console; may be empty
};

/// This node's part in one start of all of them. Nodes may start different numbers of workers.
struct NodeShare {
  int nnodes = 1;      ///< that take part
  int group_rank = 0;  ///< this one's place among them
  int node_rank = 0;   ///< the number that names it in messages
  int first_rank = 0;  ///< of its workers
  int world_size = 1;
};

struct Plan {
  std::string host;
  NodeShare share;
  int nproc = 1;  ///< workers
  std::string master_addr;
  std::uint16_t master_port = 0;  ///< 0: a free one is picked at each start
  Program program;
  std::vector<std::string> removed_variables;  ///< not handed on to workers
  std::vector<WorkerPlan> workers;
  bool writes_files = false;  ///< some stream goes to a file: a log folder is needed
};

/// What differs from one start of the group to the next.
struct Attempt {
  int restart_count = 0;
  std::uint16_t master_port = 0;
  std::string error_folder;  ///< holds one error file for each rank, and its word that it is saving
  std::string token;         ///< for the built-in program; empty otherwise
  int store_fd = -1;         ///< listening socket for local rank 0 of node 0, -1: none
  int status_fd = -1;        ///< where workers say what they do, by local rank (StatusPage); -1: nowhere
  int lease_fd = -1;         ///< by which workers see the node's lease, -1: it has none
  /// When the launcher started, in nanoseconds since 1970: equal in every attempt, it tells a group that is
  /// started again which run it belongs to, and lets workers say how long the start took.
  std::int64_t launch_time_ns = 0;
  std::string memory_folder = {};  ///< of this machine, for what outlives the workers; empty: none
};

/// How many workers this node starts. Throws UsageError when GPUs are asked for and there are none.
int count_workers(const LaunchOptions& options, const Hardware& hardware);

/// How many of the job's parameter servers run on the node of `share`: they go round the nodes.
int count_servers(const LaunchOptions& options, const NodeShare& share);

/// "rank 3", "parameter server 0"
std::string name_of(const WorkerPlan& worker);

/// What it computes on, as far as the launcher knows: "GPU 3", "CPUs 0-3", "CPU".
std::string device_of(const WorkerPlan& worker);

/// The share when all nodes take part and start as many workers as this one.
NodeShare equal_share(const NodePlacement& placement, int nproc);

/// Builds the plan. Throws UsageError where options do not fit the machine or each other.
Plan make_plan(const LaunchOptions& options, const NodePlacement& placement, const NodeShare& share,
               const Program& program, const Environment& environment, const Hardware& hardware);

/// The variables of `worker` that belong to this attempt only; they come on top of worker.environment.
Environment attempt_environment(const Plan& plan, const WorkerPlan& worker, const Attempt& attempt);

/// The name of a job that was given none, from when its first node started: it tells jobs apart, and is the
/// same on all nodes and in every restart.
std::string made_run_id(std::int64_t launch_time_ns);

/// Path of the file in which `worker` may leave the reason of its failure, below `folder`.
std::string error_file_of(const std::string& folder, const WorkerPlan& worker);

/// Path of the file that `worker` makes while it writes a checkpoint, and removes afterwards.
std::string saving_file_of(const std::string& folder, const WorkerPlan& worker);

/// Path of the file that `worker` makes when it has met the other workers and the parameter servers.
std::string met_file_of(const std::string& folder, const WorkerPlan& worker);

/// The plan in words for --dry-run. Secrets are not part of it.
std::string plan_text(const Plan& plan);

/// Reads the facts about this machine that these options need. Never throws for what is missing.
Hardware read_hardware(const LaunchOptions& options, const Environment& environment);

}  // namespace dtrain::launcher
