// Options are handed on as they were resolved here, so that no host's environment or files change their
// meaning.
#include "launcher/hosts/hosts_plan.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

// Settings of a job's software, which are meant to be the same on every host.
constexpr std::array<std::string_view, 6> kPassedPrefixes = {"DTRAIN_", "NCCL_", "GLOO_",
                                                             "OMP_",    "UCX_",  "TORCH_"};
// What concerns this launcher alone, or is said to each one in its own way.
const std::set<std::string, std::less<>> kOwnOptions = {
    "hosts",   "ssh",          "export", "config",  "nnodes",           "node-rank", "token-file",
    "dry-run", "print-config", "help",   "explain", "print-completion", "version"};
const std::set<std::string, std::less<>> kOwnVariables = {
    "DTRAIN_TOKEN",  "DTRAIN_TOKEN_FILE", "DTRAIN_HOSTS",         "DTRAIN_SSH",
    "DTRAIN_EXPORT", "DTRAIN_STORE_FD",   "DTRAIN_LAUNCH_CONFIG", "DTRAIN_NODE_RANK"};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string bare_name(const std::string& host) { return host.substr(host.find('@') + 1); }

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

void refuse_options(const ParsedCommand& line, const LaunchOptions& options) {
  const Options& given = line.options;
  for (const char* name : {"node-rank", "local-addr"}) {
    if (given.has(name))
      throw UsageError(
          fmt::format("--{}: expected no such option with --hosts, which starts a launcher on each "
                      "host; got '{}' ({})",
                      name, given.text(name), given.at(name).source));
  }
  if (options.standalone) throw UsageError("--hosts: expected several nodes, got --standalone");
  if (parse_integer(options.events))
    throw UsageError(fmt::format(
        "--events: expected the name of a file with --hosts, where no host has this launcher's descriptor {}",
        options.events));
  if (words_of(options.ssh).empty()) throw UsageError("--ssh: expected a command such as ssh, got ''");
}

void take_nodes(const LaunchOptions& options, HostsPlan& plan) {
  const int hosts = static_cast<int>(plan.hosts.size());
  plan.spares = options.spares;
  if (options.nnodes) {
    plan.nodes = *options.nnodes;
  } else {
    if (hosts <= plan.spares)
      throw UsageError(
          fmt::format("--spares: expected fewer than the {} of --hosts, got {}", hosts, plan.spares));
    plan.nodes = {hosts - plan.spares, hosts - plan.spares};
  }
  if (plan.nodes.most + plan.spares != hosts)
    throw UsageError(
        fmt::format("--hosts: expected {} hosts for --nnodes={} and --spares={}, got {}; leave out --nnodes "
                    "to use all of them",
                    plan.nodes.most + plan.spares, plan.nodes.most, plan.spares, hosts));
}

void export_variables(const std::string& list, const Environment& from, Environment& to) {
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    if (name.empty())
      throw UsageError("--export: expected NAME or NAME=VALUE, separated by commas, got '" + list + "'");
    if (equals != std::string::npos) {
      to[name] = item.substr(equals + 1);
      continue;
    }
    const auto found = from.find(name);
    if (found == from.end())
      throw UsageError("--export: expected the name of a variable that is set, or NAME=VALUE, got '" + name +
                       "'");
    to[name] = found->second;
  }
}

Environment variables_for_hosts(const LaunchOptions& options, const Environment& environment) {
  Environment passed;
  for (const auto& [name, value] : environment) {
    const bool ours =
        std::any_of(kPassedPrefixes.begin(), kPassedPrefixes.end(),
                    [&name = name](std::string_view prefix) { return name.starts_with(prefix); });
    if (ours && !kOwnVariables.contains(name)) passed[name] = value;
  }
  export_variables(options.exported, environment, passed);
  return passed;
}

}  // namespace

HostsPlan make_hosts_plan(const ParsedCommand& line, const LaunchOptions& options,
                          const Environment& environment, const ReadFile& read_file,
                          const std::string& folder) {
  refuse_options(line, options);
  HostsPlan plan;
  plan.hosts = parse_hosts(options.hosts, read_file);
  take_nodes(options, plan);
  for (const auto& [name, value] : line.options.all()) {
    if (value.source != "default" && !kOwnOptions.contains(name))
      plan.options.push_back(fmt::format("--{}={}", name, value.text));
  }
  plan.program = line.rest;
  plan.folder = folder;
  plan.environment = variables_for_hosts(options, environment);
  plan.knows_master = !options.master_addr.empty() || options.rdzv_endpoint;
  plan.knows_workers = line.options.has("nproc-per-node");
  plan.passthrough = options.passthrough;
  plan.ssh = words_of(options.ssh);
  return plan;
}

bool is_this_machine(const std::string& host, const std::string& hostname) {
  return host == "localhost" || host == hostname || host == hostname.substr(0, hostname.find('.'));
}

std::string address_of_first(const HostsPlan& plan, const std::vector<PresentHost>& present) {
  if (plan.knows_master || present.size() < 2) return {};
  const PresentHost& first = present.front();
  const std::string& own = first.greeting.reached_at;
  if (!first.here && !own.empty() && !is_loopback(own)) return own;
  if (first.here || is_loopback(own)) {
    for (const PresentHost& other : present) {
      const std::string& from = other.greeting.reached_from;
      if (!other.here && !from.empty() && !is_loopback(from)) return from;
    }
  }
  return first.here ? std::string() : own;
}

LaunchRequest request_for(const HostsPlan& plan, const HostEntry& host, int node_rank, int count,
                          const std::string& master_addr) {
  LaunchRequest request{plan.folder, {}, plan.environment};
  std::vector<std::string>& arguments = request.arguments;
  const bool elastic = plan.nodes.least < plan.nodes.most;
  // Those that have not answered will not come.
  arguments.push_back(elastic
                          ? fmt::format("--nnodes={}:{}", plan.nodes.least, std::min(count, plan.nodes.most))
                          : fmt::format("--nnodes={}", plan.nodes.most));
  if (plan.nodes.most + plan.spares > 1) {
    arguments.push_back(fmt::format("--node-rank={}", node_rank));
    if (!master_addr.empty()) arguments.push_back("--master-addr=" + master_addr);
  }
  if (host.workers && !plan.knows_workers)
    arguments.push_back(fmt::format("--nproc-per-node={}", *host.workers));
  arguments.insert(arguments.end(), plan.options.begin(), plan.options.end());
  if (plan.program.empty()) return request;
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), plan.program.begin(), plan.program.end());
  return request;
}

std::vector<std::string> command_for(const HostsPlan& plan, const HostEntry& host, bool here,
                                     const std::string& launcher, const std::string& mark) {
  if (here) return {launcher, "--from-stdin", mark};
  std::vector<std::string> command = plan.ssh;
  command.push_back(host.name);
  command.push_back(shell_quoted(launcher) + " --from-stdin " + mark);
  return command;
}

std::string plan_text(const HostsPlan& plan, const std::string& launcher, const std::string& hostname) {
  std::string text = fmt::format("{} hosts, started in {}, with the variables: {}\n", plan.hosts.size(),
                                 plan.folder, plan.environment.empty() ? "none" : "");
  if (!plan.environment.empty()) {
    text.pop_back();
    std::string names;
    for (const auto& [name, value] : plan.environment) names += (names.empty() ? "" : ", ") + name;
    text += names + "\n";
  }
  int node_rank = 0;
  for (const HostEntry& host : plan.hosts) {
    const bool here = is_this_machine(host.name, hostname);
    const bool known = plan.knows_master || plan.hosts.size() < 2;
    const LaunchRequest request =
        request_for(plan, host, node_rank++, static_cast<int>(plan.hosts.size()),
                    known ? "" : "(that of " + bare_name(plan.hosts.front().name) + ")");
    text +=
        fmt::format("{}\n  reached by: {}\n  starts:     dtrain-launch {}\n", host.name,
                    here ? "(this machine)"
                         : fmt::format("{}", fmt::join(command_for(plan, host, here, launcher, "MARK"), " ")),
                    fmt::join(request.arguments, " "));
  }
  return text;
}

}  // namespace dtrain::launcher
