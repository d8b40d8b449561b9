// Text to values. Every refusal says the option, what was expected, what came and which source it came from.
#include "launcher/plan/options.h"

#include <signal.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "cluster/detect/nodelist.h"
#include "cluster/net/handshake.h"
#include "launcher/plan/flags.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr int kMostNodes = static_cast<int>(kMaxNodes);
constexpr int kMaxWorkers = 4096;
constexpr double kMaxSeconds = 7 * 24 * 3600.0;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (true) {
    const std::size_t to = text.find(separator, from);
    parts.push_back(text.substr(from, to - from));
    if (to == std::string::npos) return parts;
    from = to + 1;
  }
}

std::string text_of(const Options& options, const std::string& name) {
  return options.has(name) ? options.text(name) : "";
}

bool is_from_environment(const Options& options, const std::string& name) {
  return options.has(name) &&
         (options.at(name).source.starts_with("DTRAIN_") || options.at(name).source.starts_with("PET_"));
}

std::optional<std::set<int>> read_ranks(const Options& options, const std::string& name) {
  if (!options.has(name)) return std::nullopt;
  std::set<int> ranks;
  for (const std::string& part : split(options.text(name), ',')) {
    const auto rank = parse_integer(part);
    if (!rank || *rank < 0 || *rank > 1'000'000)
      options.refuse(name, "ranks separated by commas, such as 0,2");
    ranks.insert(static_cast<int>(*rank));
  }
  return ranks;
}

// As torchrun has it: a comma that is meant is doubled.
std::vector<std::string> read_texts(const Options& options, const std::string& name) {
  std::vector<std::string> texts;
  if (!options.has(name)) return texts;
  const std::string& all = options.text(name);
  texts.emplace_back();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool doubled = all[i] == ',' && i + 1 < all.size() && all[i + 1] == ',';
    if (all[i] == ',' && !doubled)
      texts.emplace_back();
    else
      texts.back() += all[i];
    if (doubled) ++i;
  }
  for (const std::string& each : texts) {
    if (each.empty())
      options.refuse(name, "texts separated by commas, such as error,warning (,, is a comma)");
  }
  return texts;
}

NodeRange read_nnodes(const Options& given) {
  const std::string& text = given.text("nnodes");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    const int nodes = static_cast<int>(given.integer("nnodes", 1, kMostNodes));
    return {nodes, nodes};
  }
  const auto low = parse_integer(std::string_view(text).substr(0, colon));
  const auto high = parse_integer(std::string_view(text).substr(colon + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > kMostNodes)
    given.refuse("nnodes", "N or MIN:MAX with 1 <= MIN <= MAX");
  return {static_cast<int>(*low), static_cast<int>(*high)};
}

void read_nproc(const Options& given, LaunchOptions& options) {
  const std::string text = given.has("nproc-per-node") ? given.text("nproc-per-node") : "auto";
  if (text == "auto") {
    options.nproc_kind = NprocKind::automatic;
  } else if (text == "gpu") {
    options.nproc_kind = NprocKind::gpu;
  } else if (text == "cpu") {
    options.nproc_kind = NprocKind::cpu;
  } else if (text == "xpu") {
    options.nproc_kind = NprocKind::xpu;
  } else {
    const auto count = parse_integer(text);
    if (!count || *count < 1 || *count > kMaxWorkers)
      given.refuse("nproc-per-node",
                   "a whole number from 1 to " + std::to_string(kMaxWorkers) + ", or auto, gpu, xpu or cpu");
    options.nproc_kind = NprocKind::count;
    options.nproc = static_cast<int>(*count);
  }
}

void read_master(const Options& given, LaunchOptions& options) {
  if (given.has("rdzv-endpoint"))
    options.rdzv_endpoint = parse_endpoint(given.text("rdzv-endpoint"), "--rdzv-endpoint", std::uint16_t{0});
  options.master_addr = text_of(given, given.has("master-addr") ? "master-addr" : "local-addr");
  // Kubernetes' variable for a service that is called dtrain-master or pet-master.
  const bool link = is_from_environment(given, "master-port") && is_service_link(given.text("master-port"));
  if (given.has("master-port") && !link)
    options.master_port = static_cast<std::uint16_t>(given.integer("master-port", 0, 65535));
}

// torchrun's list of settings; those of its own backends mean nothing here.
void read_rendezvous(const Options& given, LaunchOptions& options) {
  if (given.has("rdzv-id") && given.text("rdzv-id").size() > net::kMaxServiceBytes)
    given.refuse("rdzv-id", "a name of at most " + std::to_string(net::kMaxServiceBytes) + " bytes");
  given.read("join-timeout", options.join_timeout);
  if (!given.has("rdzv-conf")) return;
  for (const std::string& part : split(given.text("rdzv-conf"), ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) given.refuse("rdzv-conf", "NAME=VALUE,…, such as join_timeout=600");
    const std::string name = part.substr(0, equals);
    const bool join = name == "join_timeout" || name == "timeout";
    if (!join && name != "last_call_timeout") continue;
    const auto seconds = parse_real(std::string_view(part).substr(equals + 1));
    if (!seconds || !(*seconds >= 0 && *seconds <= kMaxSeconds))
      given.refuse("rdzv-conf", name + " in seconds, from 0 to 604800");
    if (join && given.has("join-timeout")) continue;
    (join ? options.join_timeout : options.last_call) =
        std::chrono::milliseconds(std::llround(*seconds * 1000));
  }
}

void check_spares(const LaunchOptions& options) {
  if (options.spares == 0) return;
  if (options.standalone) throw UsageError("--spares: expected several nodes, got --standalone");
  if (options.nnodes && options.nnodes->least != options.nnodes->most)
    throw UsageError(
        "--spares: expected a fixed number of nodes, got --nnodes=MIN:MAX, where any node that comes is "
        "accepted anyway");
  if (options.max_restarts == 0)
    throw UsageError(
        "--spares: expected --max-restarts of 1 or more: a standby node takes part when the group restarts "
        "after losing a node");
}

Binding read_binding(const Options& given) {
  const std::string text = given.text("numa-binding");
  if (text == "none") return Binding::none;
  if (text == "node") return Binding::node;
  if (text == "socket") return Binding::socket;
  if (text == "exclusive" || text == "core-complex") return Binding::exclusive;
  given.refuse("numa-binding", "none, node, socket, exclusive or core-complex");
}

HangSettings read_hang(const Options& given) {
  const std::string text = given.text("on-hang");
  HangSettings settings;
  given.read("hang-timeout", settings.timeout);
  if (settings.timeout < std::chrono::seconds(1)) given.refuse("hang-timeout", "at least 1 second");
  if (text == "none") {
    settings.on_hang = OnHang::none;
  } else if (text == "stacks") {
    settings.on_hang = OnHang::stacks;
  } else if (text != "report") {
    given.refuse("on-hang", "none, report or stacks");
  }
  return settings;
}

std::vector<int> read_signals(const Options& given) {
  std::set<int> signals{SIGINT, SIGTERM, SIGHUP};
  for (const std::string& name : split(given.text("signals-to-handle"), ',')) {
    const auto number = signal_number(name);
    if (!number)
      given.refuse("signals-to-handle", "names of signals separated by commas, such as SIGTERM,SIGINT");
    if (*number == SIGKILL || *number == SIGSTOP || *number == SIGCHLD)
      given.refuse("signals-to-handle", "signals that a program can handle (not KILL, STOP or CHLD)");
    signals.insert(*number);
  }
  return {signals.begin(), signals.end()};
}

}  // namespace

StreamChoice StreamChoice::parse(const std::string& option, const std::string& text) {
  StreamChoice choice;
  const auto refuse = [&] {
    throw UsageError("--" + option +
                     ": expected 0, 1, 2 or 3 (nothing, stdout, stderr, both) or such a value for " +
                     "each local rank as in 0:1,1:2, got '" + text + "'");
  };
  const auto streams = [&](std::string_view digit) {
    if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') refuse();
    const int bits = digit[0] - '0';
    return Streams{(bits & 1) != 0, (bits & 2) != 0};
  };
  if (text.find(':') == std::string::npos) {
    choice.all_ = streams(text);
    return choice;
  }
  for (const std::string& part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const auto rank = parse_integer(std::string_view(part).substr(0, colon));
    if (colon == std::string::npos || !rank || *rank < 0 || *rank >= kMaxWorkers) refuse();
    choice.by_rank_[static_cast<int>(*rank)] = streams(std::string_view(part).substr(colon + 1));
  }
  return choice;
}

Streams StreamChoice::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

bool StreamChoice::any() const {
  if (all_.out || all_.err) return true;
  for (const auto& [rank, streams] : by_rank_) {
    if (streams.out || streams.err) return true;
  }
  return false;
}

LaunchOptions make_options(const ParsedCommand& line) {
  const Options& given = line.options;
  given.check(launch_options());
  LaunchOptions options;
#define DTRAIN_FLAG(type, field, values, name, ...) given.read(name, options.field);
#include "launcher/plan/flags.def"
  options.program = line.rest;
  if (given.has("nnodes")) options.nnodes = read_nnodes(given);
  read_nproc(given, options);
  read_master(given, options);
  options.binding = read_binding(given);
  read_rendezvous(given, options);
  options.redirects = StreamChoice::parse("redirects", given.text("redirects"));
  options.tee = StreamChoice::parse("tee", given.text("tee"));
  options.local_ranks_filter = read_ranks(given, "local-ranks-filter");
  options.ranks_filter = read_ranks(given, "ranks-filter");
  options.stdout_filters = read_texts(given, "duplicate-stdout-filters");
  options.stderr_filters = read_texts(given, "duplicate-stderr-filters");
  given.read("shutdown-timeout", options.failure_grace);
  given.read("shutdown-timeout", options.signal_grace);
  options.stop_signals = read_signals(given);
  options.hang = read_hang(given);
  if (options.module && options.no_python)
    throw UsageError("--module and --no-python exclude each other: a module is run by Python");
  if (options.standalone && options.nnodes && options.nnodes->most != 1)
    throw UsageError("--standalone: expected one node, got --nnodes=" + given.text("nnodes"));
  check_spares(options);
  if (!options.health_check.empty() && options.agent_store)
    throw UsageError(
        "--health-check: expected no --agent-store, which holds the port that the examination needs");
  for (const auto& [name, value] : given.all()) options.sources[name] = value.source;
  return options;
}

bool asks_for_agent_store(const Environment& environment) {
  return variable_or(environment, "TORCHELASTIC_USE_AGENT_STORE", "") == "True" &&
         find_variable(environment, "RANK") == nullptr;
}

void take_shutdown_timeout(const Environment& environment, LaunchOptions& options) {
  const std::string name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  const std::string* text = find_variable(environment, name);
  if (text == nullptr || options.sources.contains("shutdown-timeout")) return;
  const auto seconds = parse_real(*text);
  if (!seconds || !(*seconds >= 0 && *seconds <= kMaxSeconds))
    throw UsageError(name + ": expected seconds from 0 to 604800, got '" + *text + "'");
  options.failure_grace = options.signal_grace = std::chrono::milliseconds(std::llround(*seconds * 1000));
}

std::optional<int> signal_number(const std::string& name) {
  if (const auto number = parse_integer(name)) {
    if (*number < 1 || *number > SIGRTMAX) return std::nullopt;
    return static_cast<int>(*number);
  }
  const std::string bare = name.starts_with("SIG") ? name.substr(3) : name;
  for (int number = 1; number < 32; ++number) {
    const char* known = ::sigabbrev_np(number);
    if (known != nullptr && bare == known) return number;
  }
  return std::nullopt;
}

std::string signal_name(int number) {
  const char* known = ::sigabbrev_np(number);
  return known != nullptr ? "SIG" + std::string(known) : "signal " + std::to_string(number);
}

}  // namespace dtrain::launcher
