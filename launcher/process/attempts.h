// What all starts of the group on this node share: descriptors, log and scratch folders, the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/agent_store/agent_store.h"
#include "launcher/process/group.h"
#include "launcher/process/job.h"
#include "launcher/process/memory_folder.h"

namespace dtrain::launcher {

/// The port where rank 0 will serve its peers.
struct MasterPort {
  std::uint16_t port = 0;
  UniqueFd socket;  ///< listens there; empty where the port is left free
};

/// Binds the port on the first node, or picks one where it is 0. Only the built-in program can be handed the
/// socket itself; any other finds the port free. Throws UsageError naming the option, and who holds a taken
/// port.
MasterPort settle_master_port(const std::string& address, std::uint16_t port, bool uses_dtrain);

/// The master's ports of all starts on a node that serves there: settled at the last moment, or once where
/// the agent's store keeps listening.
class MasterPorts {
 public:
  MasterPorts(bool uses_dtrain, bool agent_store) : uses_dtrain_(uses_dtrain), agent_store_(agent_store) {}
  /// As settle_master_port, for the next start. With the agent's store the first address and port stay, no
  /// socket is handed on, and the store is empty: workers of PyTorch use the keys of the start before again.
  MasterPort settle(const std::string& address, std::uint16_t port);

 private:
  bool uses_dtrain_, agent_store_;
  std::optional<AgentStore> store_;
};

class Attempts {
 public:
  /// Blocks the signals that it handles, raises the limit on open files, has the job's control listen, makes
  /// folders: in this order, so that a signal leaves neither sockets nor folders behind.
  /// `job` and `console` must outlive it. Throws UsageError and SystemError.
  Attempts(const Job& job, Console& console);
  ~Attempts();
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  Signals& signals() noexcept { return signals_; }

  /// What differs between starts.
  struct Start {
    int number = 0;  ///< of this start on this node, from 0
    int restart_count = 0;
    std::int64_t launch_time_ns = 0;
    std::string token;  ///< for the built-in program; empty: none
  };
  /// Starts the plan's workers and watches until all have ended; `others` is watched too.
  GroupResult run(const Plan& plan, const Start& start, MasterPort master, OtherNodes* others = nullptr);

  /// Prints how the start ended and who failed.
  void report(const GroupResult& result);
  /// The job's code; a subreaper that was killed is a failure, a process that cannot be ended is none.
  static int exit_code(const GroupResult& result);
  /// What went wrong in addition to the workers' own failures, for people.
  static std::vector<std::string> troubles(const GroupResult& result);

 private:
  std::string find_scratch();
  std::string find_log_root();
  std::string make_scratch(int number) const;
  std::optional<StatusPage> make_status_page(const Plan& plan) const;

  const Job& job_;
  Console& console_;
  Signals signals_;
  std::string scratch_;
  std::string log_root_;
  MemoryFolder memory_;
};

}  // namespace dtrain::launcher
