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

/// What the options say, each in its own type: the fields of flags.def.
struct LaunchFlags {
#define DTRAIN_FLAG(type, field, ...) type field{};
#include "launcher/plan/flags.def"
};

/// What was said and what was not; placement.h completes it from what the batch system tells.
struct LaunchOptions : LaunchFlags {
  std::optional<NodeRange> nnodes;
  NprocKind nproc_kind = NprocKind::automatic;
  int nproc = 0;            ///< used with NprocKind::count
  std::string master_addr;  ///< empty: not given
  std::optional<std::uint16_t> master_port;
  std::optional<Endpoint> rdzv_endpoint;  ///< port 0: not given
  std::chrono::milliseconds join_timeout{std::chrono::minutes(10)};
  std::chrono::milliseconds last_call{std::chrono::seconds(30)};
  Binding binding = Binding::none;
  std::vector<std::string> program;

  StreamChoice redirects, tee;
  std::optional<std::set<int>> local_ranks_filter, ranks_filter;
  /// Lines that contain one of these texts are copied to a file for all ranks.
  std::vector<std::string> stdout_filters, stderr_filters;

  std::chrono::milliseconds failure_grace{5000};  ///< SIGTERM to SIGKILL after a worker failed
  std::chrono::milliseconds signal_grace{30000};  ///< the same after a forwarded signal
  std::vector<int> stop_signals;
  HangSettings hang;

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
