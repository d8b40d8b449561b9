// A table of other launchers' options, and a walk over our own part of the command line.
#include "launcher/plan/foreign_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/plan/flags.h"

namespace dtrain::launcher {
namespace {

constexpr std::string_view kWorkers =
    "the number of workers on this node is --nproc-per-node=N; on several nodes start one launcher on each, "
    "with "
    "--nnodes, --node-rank and --master-addr";
constexpr std::string_view kHosts =
    "dtrain-launch starts workers on its own node only; start one launcher on each host, with --nnodes, "
    "--node-rank and --master-addr, or let mpirun do it: mpirun --hostfile FILE --map-by ppr:1:node "
    "dtrain-launch …";
constexpr std::string_view kVariables =
    "workers inherit the launcher's environment; export the variable instead";
constexpr std::string_view kBinding = "--numa-binding=node, socket or exclusive binds workers to cores";

struct Foreign {
  std::string_view name, answer;
};

constexpr std::array kForeign = {Foreign{"-n", kWorkers},
                                 Foreign{"-np", kWorkers},
                                 Foreign{"--np", kWorkers},
                                 Foreign{"-c", kWorkers},
                                 Foreign{"--ntasks", kWorkers},
                                 Foreign{"-ppn", kWorkers},
                                 Foreign{"--ppn", kWorkers},
                                 Foreign{"-perhost", kWorkers},
                                 Foreign{"-npernode", kWorkers},
                                 Foreign{"--npernode", kWorkers},
                                 Foreign{"-N", kWorkers},
                                 Foreign{"--ntasks-per-node", kWorkers},
                                 Foreign{"--nodes", kWorkers},
                                 Foreign{"-H", kHosts},
                                 Foreign{"-host", kHosts},
                                 Foreign{"--host", kHosts},
                                 Foreign{"-hosts", kHosts},
                                 Foreign{"--hosts", kHosts},
                                 Foreign{"-f", kHosts},
                                 Foreign{"-hostfile", kHosts},
                                 Foreign{"--hostfile", kHosts},
                                 Foreign{"-machinefile", kHosts},
                                 Foreign{"--machinefile", kHosts},
                                 Foreign{"-w", kHosts},
                                 Foreign{"--nodelist", kHosts},
                                 Foreign{"-x", kVariables},
                                 Foreign{"-genv", kVariables},
                                 Foreign{"--bind-to", kBinding},
                                 Foreign{"-bind-to", kBinding},
                                 Foreign{"--map-by", kBinding},
                                 Foreign{"--cpu-bind", kBinding},
                                 Foreign{"--rank-by", kBinding}};

// Whether the next word is this option's value.
bool takes_next_word(const std::string& word) {
  const auto options = launch_options();
  const bool is_long = word.starts_with("--");
  if (word.find('=') != std::string::npos || (!is_long && word.size() != 2)) return false;
  std::string name = word.substr(is_long ? 2 : 1);
  std::replace(name.begin(), name.end(), '_', '-');
  return std::any_of(options.begin(), options.end(), [&](const OptionSpec& spec) {
    const bool same = is_long ? name == spec.name || name == spec.alias : spec.letter == name[0];
    return same && !spec.value_name.empty();
  });
}

}  // namespace

std::optional<std::string> answer_to_foreign_option(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--" || word.size() < 2 || word[0] != '-') return std::nullopt;
    const std::string name = word.substr(0, word.find('='));
    const auto found = std::find_if(kForeign.begin(), kForeign.end(), [&](const Foreign& foreign) {
      return foreign.name == name ||
             // -n4, -np4
             (foreign.name[1] != '-' && name.starts_with(foreign.name) &&
              name.find_first_not_of("0123456789", foreign.name.size()) == std::string::npos);
    });
    if (found != kForeign.end()) return std::string(found->name) + ": " + std::string(found->answer);
    if (takes_next_word(word)) ++i;
  }
  return std::nullopt;
}

}  // namespace dtrain::launcher
