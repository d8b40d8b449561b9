// What a running job looks like on this node, at one moment: for people, for programs
// (docs/status.schema.json) and for monitoring.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/files/worker_status.h"

namespace dtrain::launcher {

/// What a worker's process is doing, as far as that can be told from outside; else WorkerStatus::state.
enum class ProcessState {
  not_started,
  running,  ///< a program that says nothing of itself
  reports,  ///< WorkerJobStatus::reported says what it does
  stopped,  ///< by a signal or a debugger
  hanging,  ///< without progress for --hang-timeout
  exited,   ///< with code 0
  failed,   ///< with another code, or by a signal
};

/// One worker of this node.
struct WorkerJobStatus {
  int rank = 0, local_rank = 0;
  std::optional<int> server{};  ///< of a parameter server, its number
  pid_t pid = 0;                ///< 0: not started
  std::string device{};         ///< what it computes on: "GPU 3", "CPUs 0-3", "CPU"
  ProcessState state = ProcessState::not_started;
  std::optional<WorkerStatus> reported{};  ///< what it said last
  std::optional<int> exit_code{};          ///< 128 + signal where one killed it; empty: it runs
  double cpu_seconds = 0;                  ///< used since it started, with all that it has started
  std::uint64_t resident_bytes = 0;        ///< likewise; memory that processes share is counted in each
};

/// The state in a word: "training", "exited".
std::string_view state_of(const WorkerJobStatus& worker) noexcept;

struct JobStatus {
  static constexpr int kSchema = 1;

  std::string run_id;  ///< empty: nodes are still awaited
  pid_t pid = 0;       ///< the launcher's
  std::string host, version;
  std::vector<std::string> program;
  std::string state = "waiting";  ///< waiting (for nodes, or to start again), running, stopping
  std::int64_t started_ns = 0;    ///< when the launcher began, wall clock
  Duration running{};             ///< since then
  int node_rank = 0, nodes = 1, world_size = 0, first_rank = 0, servers = 0;
  int round = -1;  ///< which start of the workers; -1: none so far
  int restarts = 0, max_restarts = 0;
  std::vector<WorkerJobStatus> workers;  ///< of this node
};

/// The worker whose word counts for the job: of those that report, the one with the lowest rank; nullptr
/// where none does.
const WorkerJobStatus* first_that_reports(const JobStatus& job);

/// The rank that the others wait for: whose own part of a step takes longest. Empty where fewer than two
/// know.
std::optional<int> slowest_rank(const JobStatus& job);

/// One object, as the schema has it.
std::string status_json(const JobStatus& job);

/// For people, of what status_json() has written: at most 80 columns. Throws DataError where it is of another
/// schema.
std::string status_text(std::string_view json);

/// A line for each job, of such texts.
std::string jobs_text(const std::vector<std::string>& jsons);

}  // namespace dtrain::launcher
