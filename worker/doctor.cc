// `dtrain doctor`: looks at what training needs on this machine; each finding says what is wrong and the fix.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cluster/net/endpoint.h"
#include "collectives/factory.h"
#include "runtime/base/error.h"
#include "runtime/data/sources/open_source.h"
#include "runtime/device/device.h"
#include "training/start/peers.h"
#include "worker/build.h"
#include "worker/commands.h"
#include "worker/doctor.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"data-dir", "Doctor", "DIR", "", "folder with the data set's files; unset: where Debian's package installs them"},
    {"run-dir", "Doctor", "DIR", ".", "where runs will be written"},
    {"seconds", "Doctor", "SECONDS", "2", "in a job of several workers: how long each times matrix products", 0, "", "", "", option_rows::real(0, 3600)},
    {"timeout", "Doctor", "SECONDS", "300", "in a job of several workers: longest wait for the others", 0, "", "", "", option_rows::real(1, 86400)},
    {"gate", "Doctor", "", "", "for dtrain-launch --health-check: print nothing, and fail where this worker's node is bad or out of line"},
    {"json", "Doctor", "", "", "print one JSON object"},
    {"help", "Doctor", "", "", "print this text"},
};
// clang-format on

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr rlim_t kEnoughFiles = 1024;

Finding check_build(const BuildFeature& feature) {
  if (feature.built) {
    return {"build: " + feature.name, Verdict::good,
            fmt::format("built in{} ({})", feature.version.empty() ? "" : ", version " + feature.version,
                        feature.purpose),
            ""};
  }
  return {"build: " + feature.name, Verdict::note, "not built in; it is for " + feature.purpose,
          "install its development package and configure again; the table at the end of configure names it"};
}

Finding check_device() {
  try {
    return {"device", Verdict::good, make_device("auto")->name(), ""};
  } catch (const UsageError& error) {  // an emulated GPU was asked for and is not there
    return {"device", Verdict::bad, "none", error.what()};
  }
}

Finding check_cores(const Environment& environment) {
  const std::string* threads = find_variable(environment, "OMP_NUM_THREADS");
  return {"cores", Verdict::good,
          fmt::format("{} usable, OMP_NUM_THREADS {}", std::thread::hardware_concurrency(),
                      threads ? *threads : "unset"),
          ""};
}

Finding check_placement(const Environment& environment) {
  const Placement placement = find_placement(environment);
  return {"placement", Verdict::good,
          fmt::format("rank {} of {} (found through: {})", *placement.rank, *placement.world_size,
                      name_of(placement.system)),
          ""};
}

Finding check_loopback() {
  const Listener listener = listen_on("127.0.0.1", 0, Deadline::after(std::chrono::seconds(1)));
  return {"loopback", Verdict::good, fmt::format("can listen (got port {})", listener.port()), ""};
}

Finding check_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= kEnoughFiles;
  return {"open files", enough ? Verdict::good : Verdict::bad, fmt::format("at most {}", limit.rlim_cur),
          enough ? "" : fmt::format("ulimit -n {}", kEnoughFiles)};
}

Finding check_disk(const std::string& path) {
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) != 0)
    return {"run directory", Verdict::bad, path + " cannot be read",
            "create it, or choose another with --run-dir"};
  const double free_gib = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) / kGiB;
  if ((disk.f_flag & ST_RDONLY) != 0 || ::access(path.c_str(), W_OK) != 0) {
    return {"run directory", Verdict::bad, path + " cannot be written", "choose another with --run-dir"};
  }
  const bool enough = free_gib >= 1;
  return {"run directory", enough ? Verdict::good : Verdict::bad,
          fmt::format("{:.1f} GiB free in {}", free_gib, path),
          enough ? "" : "free some space, or choose another --run-dir"};
}

Finding check_dataset(const std::string& folder) {
  const auto data = open_source("fashion-mnist", Split::train, {.data_dir = folder, .log = nullptr});
  return {"fashion-mnist", Verdict::good, fmt::format("{} samples: {}", data->size(), data->name()), ""};
}

// Contradictions are findings of their own.
bool is_in_a_job(const Environment& environment) {
  try {
    return *find_placement(environment).world_size > 1;
  } catch (const UsageError&) {
    return false;
  }
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::good:
      return "ok";
    case Verdict::note:
      return "note";
    case Verdict::bad:
      return "BAD";
  }
  return "";
}

void print_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"subject", finding.subject},
                    {"verdict", name_of(finding.verdict)},
                    {"text", finding.text},
                    {"fix", finding.fix}});
  }
  fmt::print("{}\n", nlohmann::json{{"version", build_version()}, {"findings", list}}.dump(2));
}

void print_table(const std::vector<Finding>& findings) {
  fmt::print("{}\n", build_description());
  for (const Finding& finding : findings) {
    fmt::print("{:<5} {:<16} {}\n", name_of(finding.verdict), finding.subject, finding.text);
    if (!finding.fix.empty()) fmt::print("      {:<16} -> {}\n", "", finding.fix);
  }
}

}  // namespace

std::vector<Finding> examine_machine(const std::string& run_dir, const std::string& data_dir,
                                     const Environment& environment) {
  std::vector<Finding> findings;
  for (const BuildFeature& feature : build_features()) findings.push_back(check_build(feature));
  findings.push_back(guarded("device", "", [] { return check_device(); }));
  for (Finding& finding : examine_gpus(has_feature("CUDA"), has_feature("NCCL")))
    findings.push_back(std::move(finding));
  findings.push_back(check_cores(environment));
  findings.push_back(guarded("placement", "unset the variables named, or start through dtrain-launch",
                             [&] { return check_placement(environment); }));
  findings.push_back(guarded("loopback", "bring the loopback interface up: ip link set lo up",
                             [] { return check_loopback(); }));
  for (Finding& finding : examine_cluster(environment)) findings.push_back(std::move(finding));
  findings.push_back(check_files());
  findings.push_back(check_disk(run_dir));
  findings.push_back(guarded("fashion-mnist", "apt install dataset-fashion-mnist, or --data-dir",
                             [&] { return check_dataset(data_dir); }));
  return findings;
}

ExitCode run_doctor(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain doctor", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options, "usage: dtrain doctor [options]", kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  options.check(kOptions);
  const std::string data_dir = options.has("data-dir") ? options.text("data-dir") : "";
  JobExamination job{options.text("run-dir"), data_dir};
  options.read("seconds", job.seconds);
  job.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.real("timeout", 1, 86400)));
  job.json = options.enabled("json");
  job.gate = options.enabled("gate");
  if (job.gate || is_in_a_job(invocation.environment)) return examine_job(job, invocation.environment);
  const auto findings = examine_machine(job.run_dir, job.data_dir, invocation.environment);
  options.enabled("json") ? print_json(findings) : print_table(findings);
  const bool bad = std::any_of(findings.begin(), findings.end(),
                               [](const Finding& finding) { return finding.verdict == Verdict::bad; });
  return bad ? ExitCode::failure : ExitCode::ok;
}

}  // namespace dtrain
