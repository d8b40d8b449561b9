// The flag table and lookups in it.
#include "launcher/flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace dtrain::launcher {
namespace {

constexpr std::string_view kWorkers = "Worker";
constexpr std::string_view kProgram = "Program";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kFailure = "Failure";
constexpr std::string_view kOther = "Torchrun";
constexpr std::string_view kAbout = "General";

constexpr std::array kFlags = {
    Flag{"nnodes", 0, true, "1", "N", kWorkers, "number of nodes"},
    Flag{"node-rank", 0, true, "", "R", kWorkers, "which of the nodes this is, from 0"},
    Flag{"nproc-per-node", 0, true, "auto", "N", kWorkers,
         "workers on this node: a number; auto (one for each visible GPU, else 1); gpu; cpu (one for each "
         "core)"},
    Flag{"master-addr", 0, true, "", "ADDR", kWorkers, "address where rank 0 listens (one node: 127.0.0.1)"},
    Flag{"master-port", 0, true, "", "PORT", kWorkers, "port where rank 0 listens (one node: a free one)"},
    Flag{"standalone", 0, false, "false", "", kWorkers, "one node, free port; nothing else is needed"},
    Flag{"iface", 0, true, "", "NAME", kWorkers, "network interface for NCCL and Gloo"},
    Flag{"numa-binding", 0, true, "none", "HOW", kWorkers,
         "bind workers to cores: none, node (cores near the GPU, or NUMA nodes in turn), socket, exclusive "
         "(cores "
         "dealt out evenly)"},
    Flag{"virtual-local-rank", 0, false, "false", "", kWorkers,
         "each worker sees only its own GPU and LOCAL_RANK 0"},
    Flag{"role", 0, true, "default", "NAME", kWorkers, "ROLE_NAME of the workers"},

    Flag{"module", 'm', false, "false", "", kProgram, "PROGRAM is a Python module: python3 -u -m PROGRAM"},
    Flag{"no-python", 0, false, "false", "", kProgram, "run PROGRAM itself even when its name ends in .py"},
    Flag{"pass-local-rank", 0, false, "false", "", kProgram,
         "append --local-rank=N to the program's arguments"},

    Flag{"prefix", 0, false, "false", "", kOutput, "start each line with host:rank:"},
    Flag{"log-dir", 0, true, "", "DIR", kOutput,
         "one file for each rank and stream below DIR; without -r or -t lines go to both file and console"},
    Flag{"redirects", 'r', true, "0", "WHAT", kOutput,
         "send to files only: 0 nothing, 1 stdout, 2 stderr, 3 both; or by local rank: 0:1,1:2"},
    Flag{"tee", 't', true, "0", "WHAT", kOutput, "send to files and console; values as for -r"},
    Flag{"local-ranks-filter", 0, true, "", "LIST", kOutput,
         "show only these local ranks on the console: 0,2"},
    Flag{"ranks-filter", 0, true, "", "LIST", kOutput, "show only these global ranks on the console"},
    Flag{"passthrough", 0, false, "false", "", kOutput,
         "print workers' control characters (escape sequences) as they are"},

    Flag{"max-restarts", 0, true, "0", "N", kFailure,
         "start the whole group again up to N times after a failure"},
    Flag{"shutdown-timeout", 0, true, "", "SECONDS", kFailure,
         "time between SIGTERM and SIGKILL (after a failure 5, after a signal 30)"},
    Flag{"signals-to-handle", 0, true, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "LIST", kFailure,
         "signals that are forwarded to the workers and end the job"},

    Flag{"config", 0, true, "", "FILE", kAbout, "JSON object with option names and values"},
    Flag{"print-config", 0, false, "false", "", kAbout,
         "show every option, its value and where it came from"},
    Flag{"dry-run", 0, false, "false", "", kAbout, "show who would run what, and start nothing"},
    Flag{"version", 0, false, "false", "", kAbout, "show the version"},
    Flag{"help", 'h', false, "false", "", kAbout, "show this text"},

    Flag{"rdzv-endpoint", 0, true, "", "ADDR:PORT", kOther, "stands in for --master-addr and --master-port"},
    Flag{"rdzv-id", 0, true, "none", "ID", kOther, "TORCHELASTIC_RUN_ID of the workers"},
    Flag{"local-addr", 0, true, "", "ADDR", kOther, "master address on one node"},
    Flag{"rdzv-backend", 0, true, "", "NAME", kOther, "no effect", "dtrain has one rendezvous of its own"},
    Flag{"rdzv-conf", 0, true, "", "LIST", kOther, "no effect", "dtrain has one rendezvous of its own"},
    Flag{"monitor-interval", 0, true, "", "SECONDS", kOther, "no effect",
         "a worker's end is noticed at once, nothing is polled"},
    Flag{"start-method", 0, true, "", "NAME", kOther, "no effect", "workers are programs of their own"},
    Flag{"use-env", 0, false, "false", "", kOther, "no effect",
         "workers always find their rank in the environment"},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Flag> all_flags() noexcept { return kFlags; }

std::string canonical_name(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  if (text == "logdir") return "log-dir";
  if (text == "rdzv-run-id") return "rdzv-id";
  return text;
}

const Flag* find_flag(std::string_view name) {
  const std::string canonical = canonical_name(name);
  const auto found =
      std::find_if(kFlags.begin(), kFlags.end(), [&](const Flag& flag) { return flag.name == canonical; });
  return found == kFlags.end() ? nullptr : &*found;
}

const Flag* find_flag(char letter) noexcept {
  if (letter == 0) return nullptr;
  const auto found =
      std::find_if(kFlags.begin(), kFlags.end(), [&](const Flag& flag) { return flag.letter == letter; });
  return found == kFlags.end() ? nullptr : &*found;
}

std::string closest_flag(std::string_view name) {
  const std::string canonical = canonical_name(name);
  std::string_view best;
  std::size_t best_distance = canonical.size();
  for (const Flag& flag : kFlags) {
    std::size_t distance = edit_distance(canonical, flag.name);
    // An abbreviation is not a slip, but the full name is still the best answer to it.
    if (canonical.size() >= 4 && flag.name.starts_with(canonical)) distance = 1;
    if (distance < best_distance) {
      best = flag.name;
      best_distance = distance;
    }
  }
  const std::size_t tolerated = std::max<std::size_t>(2, canonical.size() / 3);
  return best_distance <= tolerated ? std::string(best) : std::string();
}

std::string variable_of(const Flag& flag) {
  std::string variable = "DTRAIN_";
  for (const char c : flag.name) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

}  // namespace dtrain::launcher
