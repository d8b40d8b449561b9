// The launcher's options as typed values, checked: what cannot be meant is refused here, before anything
// starts.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/net/endpoint.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {

/// Which of a worker's two streams something applies to.
struct Streams {
  bool out = false;
  bool err = false;
};

/// torchrun's stream selection: one value for all local ranks, or one for each rank that is named.
class StreamChoice {
 public:
  /// Parses "0".."3" or "0:1,1:2"; `option` names the flag in errors. Throws UsageError.
  static StreamChoice parse(const std::string& option, const std::string& text);
  Streams of(int local_rank) const;
  bool any() const;
  /// The highest local rank that is named, -1 when none is.
  int highest_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

enum class NprocKind { count, automatic, gpu, cpu, xpu };
enum class Binding { none, node, socket, exclusive };

/// How many nodes may take part; more than one number means that nodes may go and come.
struct NodeRange {
  int least = 1, most = 1;
};

/// What is done about workers that make no progress.
enum class OnHang { none, report, stacks };

struct HangSettings {
  OnHang on_hang = OnHang::report;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  ///< without progress
};

/// What was said and what was not; placement.h completes it from what the batch system tells.
struct LaunchOptions {
  std::optional<NodeRange> nnodes;
  int spares = 0;
  std::optional<int> node_rank;
  bool standalone = false;
  NprocKind nproc_kind = NprocKind::automatic;
  int nproc = 0;                     ///< used with NprocKind::count
  int servers = 0;                   ///< parameter servers beside all workers of the job
  std::optional<int> emulated_gpus;  ///< in place of the machine's GPUs
  std::string master_addr;           ///< empty: not given
  std::optional<std::uint16_t> master_port;
  std::optional<Endpoint> rdzv_endpoint;  ///< port 0: not given
  std::chrono::milliseconds join_timeout{std::chrono::minutes(10)};
  std::chrono::milliseconds last_call{std::chrono::seconds(30)};
  std::chrono::milliseconds lease{10000};  ///< a node that hears no answer for so long ends its workers
  std::string token_file;
  bool insecure = false;
  std::string iface;
  bool agent_store = false;  ///< node 0 serves PyTorch's TCPStore at the master's address and port
  Binding binding = Binding::none;
  bool virtual_local_rank = false;
  std::string role;
  std::string run_id;  ///< empty: each job gets one of its own

  bool module = false;
  bool no_python = false;
  bool run_path = false;  ///< PROGRAM is a Python file whatever its name
  bool pass_local_rank = false;
  std::vector<std::string> program;

  bool prefix = false;
  std::string line_prefix;  ///< torchrun's template; empty: not given
  bool passthrough = false;
  std::string log_dir;
  StreamChoice redirects, tee;
  std::optional<std::set<int>> local_ranks_filter, ranks_filter;
  /// Lines that contain one of these texts are copied to a file for all ranks.
  std::vector<std::string> stdout_filters, stderr_filters;

  int max_restarts = 0;
  std::chrono::milliseconds failure_grace{5000};  ///< SIGTERM to SIGKILL after a worker failed
  std::chrono::milliseconds signal_grace{30000};  ///< the same after a forwarded signal
  std::chrono::milliseconds saving_grace{
      60000};  ///< so much longer for a worker that is writing a checkpoint
  std::vector<int> stop_signals;
  HangSettings hang;

  bool dry_run = false, print_config = false, explain = false;
  std::map<std::string, std::string> sources;  ///< of each option that has a value
};

/// Converts and checks every setting. Pure. Throws UsageError: option, what was expected, what came, and
/// where from.
LaunchOptions make_options(const ParsedCommand& line);

/// Whether the user asks by torchrun's own variable, TORCHELASTIC_USE_AGENT_STORE=True, for the agent's
/// store. Beside RANK it is a worker's, which another launcher has set.
bool asks_for_agent_store(const Environment& environment);

/// Takes torchrun's variable for --shutdown-timeout, TORCH_ELASTIC_SHUTDOWN_TIMEOUT, where the option is not
/// given. Throws UsageError.
void take_shutdown_timeout(const Environment& environment, LaunchOptions& options);

/// The number of a signal called "SIGTERM", "TERM" or "15"; empty when there is none.
std::optional<int> signal_number(const std::string& name);

/// "SIGTERM" for 15; "signal 77" for one without a name.
std::string signal_name(int number);

}  // namespace dtrain::launcher
