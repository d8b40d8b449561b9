// The last thing a failed job prints: who failed first, how, and what it said.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cluster/rendezvous/protocol.h"
#include "launcher/plan/plan.h"

namespace dtrain::launcher {

/// Why a job ended or started again, ready to print: the same in all launchers.
using Failure = rendezvous::Failure;

/// All that is known about a worker that failed.
struct FailedWorker {
  int rank = 0;
  int local_rank = 0;
  std::optional<int> server;     ///< of a parameter server, its number
  std::optional<int> node_rank;  ///< where there are more nodes than one
  std::string host;
  long pid = 0;
  int status = 0;      ///< as wait(2) has it
  int exec_error = 0;  ///< errno of a failed execve, 0 when it started
  std::string program;
  bool out_of_memory = false;  ///< the kernel's out-of-memory killer was at work
  long max_rss_kib = 0;
  std::string error_text;  ///< from its error file; may be empty
  std::deque<std::string> last_lines;
  std::string log_file;
  bool consequence = false;  ///< it only reported that it had lost a peer
  std::string master;        ///< address and port that rank 0 opens; empty where the launcher does
};

/// "rank 1 (host box, local rank 1, pid 42) failed first: exit code 7". One line.
std::string failure_line(const FailedWorker& failed);

/// The report's lines: the failure in one, then its last words and where its log is.
std::vector<std::string> failure_report(const FailedWorker& failed);

/// What the failed worker means to the job.
Failure failure_of(const FailedWorker& failed);

/// 128 + signal for one killed by a signal, else the exit code; `status` as wait(2) has it.
int exit_code_of(int status);

/// The message in an error file of torch.distributed.elastic's format (JSON, "message" a text or an object
/// with a "message"); "" when there is none or it cannot be understood. Never throws.
std::string read_error_file(const std::string& path);

/// How many processes the kernel's out-of-memory killer has ended: in this control group (version 2 or 1) and
/// in the whole machine, where that can be read.
struct OomKills {
  std::optional<std::uint64_t> group, machine;
};
OomKills read_oom_kills();

/// Whether the killer has struck between the two readings; this control group's count decides where there is
/// one.
bool oom_since(const OomKills& before, const OomKills& after);

}  // namespace dtrain::launcher
