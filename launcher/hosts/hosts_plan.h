// What --hosts means for the launcher of each host: its node_rank, its options, its environment. Pure.
#pragma once

#include <string>
#include <vector>

#include "cluster/net/token.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/launch_request.h"
#include "launcher/plan/options.h"

namespace dtrain::launcher {

struct HostsPlan {
  std::vector<HostEntry> hosts;
  NodeRange nodes;
  int spares = 0;
  std::vector<std::string> options;  ///< the same for all launchers
  std::vector<std::string> program;
  std::string folder;
  Environment environment;       ///< for the hosts; the secret is not part of it
  bool knows_master = false;     ///< --master-addr or --rdzv-endpoint is among the options
  bool knows_workers = false;    ///< --nproc-per-node is
  bool passthrough = false;      ///< output is not to be escaped
  std::vector<std::string> ssh;  ///< words of --ssh
};

/// `folder`: in which the job is started, on every host. Variables that begin with one of the prefixes in
/// docs/launching.md, and those of --export, are for the hosts. Throws UsageError where the number of hosts
/// is not that of the nodes and spares, for options that only make sense without --hosts, and for variables
/// of --export that are not set.
HostsPlan make_hosts_plan(const ParsedCommand& line, const LaunchOptions& options,
                          const Environment& environment, const ReadFile& read_file,
                          const std::string& folder);

/// Whether `host` is this machine, whose name is `hostname`: then nothing needs ssh.
bool is_this_machine(const std::string& host, const std::string& hostname);

/// A host that has answered.
struct PresentHost {
  HostEntry entry;
  bool here = false;  ///< on this machine
  ProxyGreeting greeting;
};

/// The address at which the first of `present` is reached by the others, as ssh has shown it: its own on the
/// way to it, or where it is this machine, the address from which another host was reached. Empty when ssh
/// has shown neither, and when the plan knows it.
std::string address_of_first(const HostsPlan& plan, const std::vector<PresentHost>& present);

/// For the launcher of the host that is the `node_rank`-th of the `count` that have answered; `master_addr`
/// may be empty where the plan knows it, or with one host.
LaunchRequest request_for(const HostsPlan& plan, const HostEntry& host, int node_rank, int count,
                          const std::string& master_addr);

/// The command that leads to `host`: `launcher` --from-stdin `mark`, by ssh where it is not `here`.
std::vector<std::string> command_for(const HostsPlan& plan, const HostEntry& host, bool here,
                                     const std::string& launcher, const std::string& mark);

/// For --dry-run: the command of each host and what its launcher is started with. The secret is not part of
/// it.
std::string plan_text(const HostsPlan& plan, const std::string& launcher, const std::string& hostname);

}  // namespace dtrain::launcher
