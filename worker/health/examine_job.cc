// `dtrain doctor` as the program of a job: one table of all workers, in which a node that is out of line
// shows.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "cluster/detect/detect.h"
#include "parallel/share.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "worker/benchmark/all_reduce.h"
#include "worker/build.h"
#include "worker/doctor.h"
#include "worker/health/measure.h"

namespace dtrain {
namespace {

constexpr std::size_t kReducedElements = std::size_t{1} << 20;        // 4 MiB of float32
constexpr std::size_t kReducedOnGpus = std::size_t{1} << 25;          // 128 MiB
constexpr std::size_t kReducedOnEmulatedGpus = std::size_t{1} << 18;  // 1 MiB
constexpr std::chrono::seconds kGpuPatience{60};
constexpr std::size_t kNoTerminal = 120;

std::string host_name() {
  const std::string name = this_machine().hostname;
  return name.empty() ? "unknown" : name.substr(0, name.find('.'));
}

// The launcher says how wide its terminal is.
std::size_t width_of_terminal(const Environment& environment) {
  for (const char* variable : {"DTRAIN_COLUMNS", "COLUMNS"}) {
    const std::string* text = find_variable(environment, variable);
    const auto columns = text == nullptr ? std::nullopt : parse_integer(*text);
    if (columns && *columns >= 20) return static_cast<std::size_t>(*columns);
  }
  winsize window{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 20;
  return known ? window.ws_col : kNoTerminal;
}

/// The GPU of this worker, or where there is none the CPU; null where a GPU fails.
std::shared_ptr<Device> find_device(const Placement& placement) {
  try {
    return make_device("auto", {.local_rank = *placement.local_rank});
  } catch (const Error&) {
    return nullptr;  // a finding says why
  }
}

HealthReport examine_node(const JobExamination& wanted, const Environment& environment,
                          const Placement& placement, const std::shared_ptr<Device>& device) {
  HealthReport report;
  report.rank = *placement.rank;
  report.host = host_name();
  for (Finding& finding : examine_machine(wanted.run_dir, wanted.data_dir, environment)) {
    // Nobody needs this data set to examine a cluster, and `dtrain train` names what it lacks.
    if (finding.verdict == Verdict::bad && finding.subject != "fashion-mnist")
      report.bad.push_back(std::move(finding));
  }
  report.device = device ? device->name() : "none";
  measure_node(report, device, wanted.run_dir, *placement.local_rank == 0, wanted.seconds);
  return report;
}

/// The ranks of this worker's node, in order, where each has a GPU of its own, nothing is known to be wrong,
/// and there are several; else empty. Collective.
std::vector<int> ranks_with_gpus(const HealthReport& report, const Placement& placement,
                                 const Environment& environment, const Device* device,
                                 Communicator& communicator, Duration timeout) {
  const std::string node = (placement.node_rank ? std::to_string(*placement.node_rank) : report.host) + " ";
  const bool gpu = device != nullptr && device->type() == DeviceType::cuda && report.bad.empty();
  // Where each worker sees its own GPU alone, it is the first for all of them.
  const std::string place =
      gpu ? fmt::format("{} {}", variable_or(environment, "CUDA_VISIBLE_DEVICES", ""), device->index())
          : "none";
  std::vector<int> ranks;
  std::set<std::string> gpus;
  const auto places = gather_texts(communicator, node + place, Deadline::after(timeout));
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (!places[rank].starts_with(node)) continue;
    if (places[rank] == node + "none" || !gpus.insert(places[rank]).second) return {};
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks.size() > 1 ? ranks : std::vector<int>();
}

/// How fast the GPUs of this node reduce together, by the collectives that training takes. Reported by the
/// node's first; what fails is a bad finding of each.
void measure_gpus(HealthReport& report, const std::vector<int>& ranks, const std::shared_ptr<Device>& device,
                  Store* store, Duration timeout) {
  if (ranks.empty() || store == nullptr) return;
  try {
    FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
    const auto own = std::find(ranks.begin(), ranks.end(), report.rank);
    Bootstrap bootstrap;
    bootstrap.rank = static_cast<int>(own - ranks.begin());
    bootstrap.size = static_cast<int>(ranks.size());
    bootstrap.store = store;
    bootstrap.timeout = timeout;
    bootstrap.device = device.get();
    bootstrap.name = fmt::format("doctor-{}", ranks.front());
    const auto group = make_communicator(Backend::nccl, bootstrap, log);
    AllReducePlan plan;
    plan.warmup = 2;
    plan.iterations = 20;
    plan.timeout = timeout;
    const AllReduceResult reduced = measure_all_reduce(
        *group, device, device->is_emulated() ? kReducedOnEmulatedGpus : kReducedOnGpus, plan);
    if (reduced.wrong > 0)
      throw Error(fmt::format("{} elements of the sums over the GPUs of ranks {} to {} are wrong",
                              reduced.wrong, ranks.front(), ranks.back()));
    if (own == ranks.begin())
      report[Metric::gpu_all_reduce] = static_cast<double>(reduced.bytes()) / reduced.best_seconds;
  } catch (const UsageError&) {
    // There is no NCCL here; a program may bring its own.
  } catch (const std::exception& error) {
    report.bad.push_back({"GPU all_reduce", Verdict::bad, error.what(),
                          "look for errors of the GPUs and their links in dmesg and nvidia-smi nvlink -e"});
  }
}

void print(const std::vector<HealthReport>& reports, const AllReduceResult& reduced, std::string_view backend,
           const JobExamination& wanted, const Environment& environment) {
  if (wanted.json) {
    fmt::print("{}", health_json(reports, build_version()));
    return;
  }
  std::set<std::string> hosts;
  for (const HealthReport& report : reports) hosts.insert(report.host);
  fmt::print(
      "{}\n{} workers on {} host{}; all_reduce of 4 MiB by {}: {:.3g} ms, bus bandwidth {:.3g} GB/s\n\n{}",
      build_description(), reports.size(), hosts.size(), hosts.size() == 1 ? "" : "s", backend,
      1e3 * reduced.median_seconds, reduced.bus_gbs(), health_table(reports, width_of_terminal(environment)));
}

// Each worker judges its own node, by what all of them have measured.
void judge(const std::vector<HealthReport>& reports, std::size_t own) {
  std::string reasons;
  const auto add = [&](const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; };
  for (const Finding& finding : reports[own].bad) add(finding.subject + ": " + finding.text);
  for (const Outlier& outlier : find_outliers(reports)) {
    if (outlier.row == own && spec_of(outlier.metric).decides) add(text_of(outlier));
  }
  if (!reasons.empty()) throw Error("this node is unfit: " + reasons);
}

}  // namespace

ExitCode examine_job(const JobExamination& wanted, const Environment& environment) {
  const Placement placement = find_placement(environment);
  limit_threads(placement, environment);
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  const std::shared_ptr<Device> device = find_device(placement);
  HealthReport report = examine_node(wanted, environment, placement, device);
  Peers peers(placement, Backend::automatic, environment, wanted.timeout, log);
  Communicator& communicator = peers.communicator();
  measure_links(report, communicator,
                gather_texts(communicator, report.host, Deadline::after(wanted.timeout)), wanted.timeout);
  measure_gpus(report,
               ranks_with_gpus(report, placement, environment, device.get(), communicator, wanted.timeout),
               device, peers.store(), std::min<Duration>(wanted.timeout, kGpuPatience));
  AllReducePlan plan;
  plan.warmup = 1;
  plan.iterations = 3;
  plan.timeout = wanted.timeout;
  const AllReduceResult reduced =
      measure_all_reduce(communicator, make_device("cpu"), kReducedElements, plan);
  std::vector<HealthReport> reports;
  for (const std::string& text : gather_texts(communicator, to_json(report), Deadline::after(wanted.timeout)))
    reports.push_back(health_from_json(text));
  const std::string backend(communicator.backend());
  peers.leave();
  if (wanted.gate) {
    judge(reports, static_cast<std::size_t>(report.rank));
    return ExitCode::ok;
  }
  if (report.rank != 0) return ExitCode::ok;
  print(reports, reduced, backend, wanted, environment);
  const bool bad =
      reduced.wrong > 0 ||
      std::any_of(reports.begin(), reports.end(), [](const HealthReport& each) { return !each.bad.empty(); });
  return bad ? ExitCode::failure : ExitCode::ok;
}

}  // namespace dtrain
