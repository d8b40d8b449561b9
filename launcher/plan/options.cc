// Text to values. Every refusal says the option, what was expected, what came and which source it came from.
#include "launcher/plan/options.h"

#include <signal.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr int kMaxNodes = 65536;
constexpr int kMaxWorkers = 4096;
constexpr std::chrono::seconds kShortestLease{1}, kLongestLease{3600};
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

// What the resolved options mean to a launcher.
class Reader {
 public:
  explicit Reader(const Options& options) : options_(options) {}

  std::string text(const std::string& name) const { return given(name) ? options_.text(name) : ""; }
  bool given(const std::string& name) const { return options_.has(name); }
  bool from_environment(const std::string& name) const {
    return given(name) &&
           (options_.at(name).source.starts_with("DTRAIN_") || options_.at(name).source.starts_with("PET_"));
  }
  bool flag(const std::string& name) const { return options_.enabled(name); }
  int number(const std::string& name, int low, int high) const {
    return static_cast<int>(options_.integer(name, low, high));
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& expected) const {
    options_.refuse(name, expected);
  }

  std::chrono::milliseconds seconds(const std::string& name) const {
    return std::chrono::milliseconds(std::llround(options_.real(name, 0, kMaxSeconds) * 1000));
  }

  std::optional<std::set<int>> ranks(const std::string& name) const {
    if (!given(name)) return std::nullopt;
    std::set<int> ranks;
    for (const std::string& part : split(text(name), ',')) {
      const auto rank = parse_integer(part);
      if (!rank || *rank < 0 || *rank > 1'000'000) refuse(name, "ranks separated by commas, such as 0,2");
      ranks.insert(static_cast<int>(*rank));
    }
    return ranks;
  }

  // As torchrun has it: a comma that is meant is doubled.
  std::vector<std::string> texts(const std::string& name) const {
    std::vector<std::string> texts;
    if (!given(name)) return texts;
    const std::string all = text(name);
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
      if (each.empty()) refuse(name, "texts separated by commas, such as error,warning (,, is a comma)");
    }
    return texts;
  }

 private:
  const Options& options_;
};

NodeRange read_nnodes(const Reader& read) {
  const std::string text = read.text("nnodes");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    const int nodes = read.number("nnodes", 1, kMaxNodes);
    return {nodes, nodes};
  }
  const auto low = parse_integer(std::string_view(text).substr(0, colon));
  const auto high = parse_integer(std::string_view(text).substr(colon + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > kMaxNodes)
    read.refuse("nnodes", "N or MIN:MAX with 1 <= MIN <= MAX");
  return {static_cast<int>(*low), static_cast<int>(*high)};
}

void read_nproc(const Reader& read, LaunchOptions& options) {
  const std::string text = read.text("nproc-per-node");
  if (!read.given("nproc-per-node") || text == "auto") {
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
      read.refuse("nproc-per-node",
                  "a whole number from 1 to " + std::to_string(kMaxWorkers) + ", or auto, gpu, xpu or cpu");
    options.nproc_kind = NprocKind::count;
    options.nproc = static_cast<int>(*count);
  }
}

void read_master(const Reader& read, LaunchOptions& options) {
  if (read.given("rdzv-endpoint"))
    options.rdzv_endpoint = parse_endpoint(read.text("rdzv-endpoint"), "--rdzv-endpoint", std::uint16_t{0});
  options.master_addr = read.text(read.given("master-addr") ? "master-addr" : "local-addr");
  // Kubernetes' variable for a service that is called dtrain-master or pet-master.
  const bool link = read.from_environment("master-port") && is_service_link(read.text("master-port"));
  if (read.given("master-port") && !link)
    options.master_port = static_cast<std::uint16_t>(read.number("master-port", 0, 65535));
}

// torchrun's list of settings; those of its own backends mean nothing here.
void read_rendezvous(const Reader& read, LaunchOptions& options) {
  options.run_id = read.text("rdzv-id");
  options.lease = read.seconds("lease-timeout");
  if (options.lease < kShortestLease || options.lease > kLongestLease)
    read.refuse("lease-timeout", "seconds from 1 to 3600");
  if (read.given("join-timeout")) options.join_timeout = read.seconds("join-timeout");
  options.token_file = read.text("token-file");
  options.insecure = read.flag("insecure");
  if (!read.given("rdzv-conf")) return;
  for (const std::string& part : split(read.text("rdzv-conf"), ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) read.refuse("rdzv-conf", "NAME=VALUE,…, such as join_timeout=600");
    const std::string name = part.substr(0, equals);
    const bool join = name == "join_timeout" || name == "timeout";
    if (!join && name != "last_call_timeout") continue;
    const auto seconds = parse_real(std::string_view(part).substr(equals + 1));
    if (!seconds || !(*seconds >= 0 && *seconds <= kMaxSeconds))
      read.refuse("rdzv-conf", name + " in seconds, from 0 to 604800");
    if (join && read.given("join-timeout")) continue;
    (join ? options.join_timeout : options.last_call) =
        std::chrono::milliseconds(std::llround(*seconds * 1000));
  }
}

void check_spares(const LaunchOptions& options) {
  if (options.spares == 0) return;
  if (options.standalone) throw UsageError("--spares: expected several nodes, got --standalone");
  if (options.nnodes && options.nnodes->least != options.nnodes->most)
    throw UsageError(
        "--spares: expected a fixed number of nodes, got --nnodes=MIN:MAX, where a node that comes is taken "
        "in anyway");
  if (options.max_restarts == 0)
    throw UsageError(
        "--spares: expected --max-restarts of 1 or more: a spare takes part when the group restarts without "
        "a lost node");
}

Binding read_binding(const Reader& read) {
  const std::string text = read.text("numa-binding");
  if (text == "none") return Binding::none;
  if (text == "node") return Binding::node;
  if (text == "socket") return Binding::socket;
  if (text == "exclusive" || text == "core-complex") return Binding::exclusive;
  read.refuse("numa-binding", "none, node, socket, exclusive or core-complex");
}

HangSettings read_hang(const Reader& read) {
  const std::string text = read.text("on-hang");
  HangSettings settings;
  settings.timeout = read.seconds("hang-timeout");
  if (settings.timeout < std::chrono::seconds(1)) read.refuse("hang-timeout", "at least 1 second");
  if (text == "none") {
    settings.on_hang = OnHang::none;
  } else if (text == "stacks") {
    settings.on_hang = OnHang::stacks;
  } else if (text != "report") {
    read.refuse("on-hang", "none, report or stacks");
  }
  return settings;
}

std::vector<int> read_signals(const Reader& read) {
  std::set<int> signals{SIGINT, SIGTERM, SIGHUP};
  for (const std::string& name : split(read.text("signals-to-handle"), ',')) {
    const auto number = signal_number(name);
    if (!number)
      read.refuse("signals-to-handle", "names of signals separated by commas, such as SIGTERM,SIGINT");
    if (*number == SIGKILL || *number == SIGSTOP || *number == SIGCHLD)
      read.refuse("signals-to-handle", "signals that a program can handle (not KILL, STOP or CHLD)");
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
  const Reader read(line.options);
  LaunchOptions options;
  options.program = line.rest;
  if (read.given("nnodes")) options.nnodes = read_nnodes(read);
  options.spares = read.number("spares", 0, kMaxNodes);
  if (read.given("node-rank")) options.node_rank = read.number("node-rank", 0, 2 * kMaxNodes - 1);
  read_nproc(read, options);
  options.servers = read.number("servers", 0, kMaxWorkers);
  if (read.given("emulated-gpus")) options.emulated_gpus = read.number("emulated-gpus", 1, kMaxWorkers);
  read_master(read, options);
  options.iface = read.text("iface");
  options.agent_store = read.flag("agent-store");
  options.binding = read_binding(read);
  options.virtual_local_rank = read.flag("virtual-local-rank");
  options.role = read.text("role");
  read_rendezvous(read, options);
  options.standalone = read.flag("standalone");
  options.module = read.flag("module");
  options.no_python = read.flag("no-python");
  options.run_path = read.flag("run-path");
  options.pass_local_rank = read.flag("pass-local-rank");
  options.prefix = read.flag("prefix");
  options.line_prefix = read.text("log-line-prefix-template");
  options.passthrough = read.flag("passthrough");
  options.log_dir = read.text("log-dir");
  options.redirects = StreamChoice::parse("redirects", read.text("redirects"));
  options.tee = StreamChoice::parse("tee", read.text("tee"));
  options.local_ranks_filter = read.ranks("local-ranks-filter");
  options.ranks_filter = read.ranks("ranks-filter");
  options.stdout_filters = read.texts("duplicate-stdout-filters");
  options.stderr_filters = read.texts("duplicate-stderr-filters");
  options.max_restarts = read.number("max-restarts", 0, 1'000'000);
  if (read.given("shutdown-timeout"))
    options.failure_grace = options.signal_grace = read.seconds("shutdown-timeout");
  options.saving_grace = read.seconds("saving-timeout");
  options.stop_signals = read_signals(read);
  options.hang = read_hang(read);
  options.dry_run = read.flag("dry-run");
  options.print_config = read.flag("print-config");
  if (options.module && options.no_python)
    throw UsageError("--module and --no-python exclude each other: a module is run by Python");
  if (options.standalone && options.nnodes && options.nnodes->most != 1)
    throw UsageError("--standalone: expected one node, got --nnodes=" + read.text("nnodes"));
  check_spares(options);
  options.explain = read.flag("explain");
  for (const auto& [name, value] : line.options.all()) options.sources[name] = value.source;
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
