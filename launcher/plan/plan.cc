// Computes ranks, environments and output of every worker.
#include "launcher/plan/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "cluster/detect/gpus.h"
#include "runtime/base/error.h"
#include "runtime/base/files/worker_status.h"
#include "runtime/base/files/write_permit.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {
namespace {

constexpr const char* kEmulatedGpus = "DTRAIN_EMULATED_GPUS";
constexpr const char* kUnbuffered = "PYTHONUNBUFFERED";
constexpr const char* kNcclErrors = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

std::string gpu_of(const Hardware& hardware, int local_rank) {
  if (hardware.gpus.empty()) return "";
  if (hardware.gpus.size() == 1) return hardware.gpus[0];
  const auto index = static_cast<std::size_t>(local_rank);
  return index < hardware.gpus.size() ? hardware.gpus[index] : "";
}

constexpr const char* kRunId = "TORCHELASTIC_RUN_ID";
constexpr const char* kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";
constexpr const char* kServer = "DTRAIN_SERVER";

Environment base_environment(const LaunchOptions& options, const Plan& plan, const WorkerPlan& worker) {
  Environment e;
  e["RANK"] = e["ROLE_RANK"] = std::to_string(worker.rank);
  e["WORLD_SIZE"] = e["ROLE_WORLD_SIZE"] = std::to_string(plan.share.world_size);
  e["LOCAL_RANK"] = std::to_string(options.virtual_local_rank ? 0 : worker.local_rank);
  e["LOCAL_WORLD_SIZE"] = std::to_string(plan.nproc);
  e["GROUP_RANK"] = e["NODE_RANK"] = std::to_string(plan.share.group_rank);
  e["GROUP_WORLD_SIZE"] = std::to_string(plan.share.nnodes);
  e["ROLE_NAME"] = options.role;
  e["MASTER_ADDR"] = plan.master_addr;
  e["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  if (!options.run_id.empty()) e[kRunId] = options.run_id;
  if (options.agent_store) e[kUseAgentStore] = "True";
  if (options.servers > 0) {
    e["DTRAIN_SERVERS"] = std::to_string(options.servers);
    e[kServer] = worker.server ? std::to_string(*worker.server) : "none";
  }
  if (worker.server) {
    for (const char* name : {"RANK", "ROLE_RANK", "LOCAL_RANK"}) e.erase(name);
  }
  if (options.virtual_local_rank) e["CUDA_VISIBLE_DEVICES"] = worker.gpu;
  if (options.emulated_gpus) e[kEmulatedGpus] = std::to_string(*options.emulated_gpus);
  if (!options.iface.empty()) e["NCCL_SOCKET_IFNAME"] = e["GLOO_SOCKET_IFNAME"] = options.iface;
  return e;
}

bool shown(const LaunchOptions& options, const WorkerPlan& worker) {
  if (worker.server) return true;
  if (options.local_ranks_filter && !options.local_ranks_filter->contains(worker.local_rank)) return false;
  return !options.ranks_filter || options.ranks_filter->contains(worker.rank);
}

StreamPlan stream_plan(const LaunchOptions& options, const WorkerPlan& worker, bool redirected, bool teed,
                       const char* name) {
  // A log folder without a word on what goes there means: everything, and on the console as well.
  if (!options.log_dir.empty() && !options.redirects.any() && !options.tee.any()) teed = true;
  StreamPlan stream;
  stream.console = shown(options, worker) && (teed || !redirected);
  if (teed || redirected) stream.file = std::to_string(worker.rank) + "/" + name;
  return stream;
}

// As torchrun has it.
constexpr const char* kLinePrefix = "[${role_name}${local_rank}]:";
constexpr const char* kLinePrefixVariable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";

// The template with its names replaced; others stay as they are.
std::string line_prefix(std::string text, const LaunchOptions& options, const Plan& plan,
                        const WorkerPlan& worker) {
  const std::pair<std::string, std::string> values[] = {{"role_name", options.role},
                                                        {"local_rank", std::to_string(worker.local_rank)},
                                                        {"rank", std::to_string(worker.rank)},
                                                        {"hostname", plan.host}};
  for (const auto& [name, value] : values) {
    const std::string written = "${" + name + "}";
    for (std::size_t at = text.find(written); at != std::string::npos; at = text.find(written, at))
      text.replace(std::exchange(at, at + value.size()), written.size(), value);
  }
  return text;
}

void plan_output(const LaunchOptions& options, const Plan& plan, const Environment& environment,
                 WorkerPlan& worker) {
  const Streams redirected = options.redirects.of(worker.local_rank);
  const Streams teed = options.tee.of(worker.local_rank);
  worker.out = stream_plan(options, worker, redirected.out, teed.out, "stdout.log");
  worker.err = stream_plan(options, worker, redirected.err, teed.err, "stderr.log");
  if (options.prefix) {
    worker.prefix = plan.host + ":" + std::to_string(worker.rank) + ": ";
  } else if (!options.line_prefix.empty() && (teed.out || teed.err || !options.log_dir.empty())) {
    worker.prefix = line_prefix(options.line_prefix, options, plan, worker);
  } else if (teed.out || teed.err) {
    worker.prefix =
        line_prefix(variable_or(environment, kLinePrefixVariable, kLinePrefix), options, plan, worker);
  }
}

void check_ranks(const LaunchOptions& options, const Plan& plan) {
  const auto check_choice = [&](const StreamChoice& choice, const char* name) {
    if (choice.highest_rank() >= plan.nproc)
      throw UsageError(std::string("--") + name + ": names local rank " +
                       std::to_string(choice.highest_rank()) + ", but there are only " +
                       std::to_string(plan.nproc) + " workers on this node");
  };
  check_choice(options.redirects, "redirects");
  check_choice(options.tee, "tee");
  if (options.local_ranks_filter && *options.local_ranks_filter->rbegin() >= plan.nproc)
    throw UsageError("--local-ranks-filter: names local rank " +
                     std::to_string(*options.local_ranks_filter->rbegin()) + ", but there are only " +
                     std::to_string(plan.nproc) + " workers on this node");
}

void check_agent_store(const LaunchOptions& options, const Program& program) {
  if (options.agent_store && program.uses_dtrain)
    throw UsageError(
        "--agent-store: expected a program that uses PyTorch; programs that use dtrain have a store of their "
        "own at that port, got " +
        program.path);
}

std::string omp_threads(const Hardware& hardware, int nproc) {
  return std::to_string(std::max(1, usable_cores(hardware.cpus) / nproc));
}

/// How a worker's threads compute, unless the user has said so.
void set_threads(const Environment& environment, const Hardware& hardware, int nproc, bool uses_dtrain,
                 Environment& worker) {
  if (!environment.contains("OMP_NUM_THREADS")) worker["OMP_NUM_THREADS"] = omp_threads(hardware, nproc);
  // OpenMP's threads read this as they start. Those that spin take a busy machine's cores from those that
  // compute.
  if (uses_dtrain && !environment.contains("OMP_WAIT_POLICY") && !environment.contains("GOMP_SPINCOUNT"))
    worker["OMP_WAIT_POLICY"] = "passive";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$&|;<>*?()") == std::string::npos;
    if (!text.empty()) text += ' ';
    if (!plain) text += '\'';
    text += word;
    if (!plain) text += '\'';
  }
  return text;
}

std::string worker_text(const Plan& plan, const WorkerPlan& worker) {
  std::string text = name_of(worker);
  if (!worker.server) text += " (local rank " + std::to_string(worker.local_rank) + ")";
  text += " on " + plan.host + ", " + (worker.gpu.empty() ? "no GPU" : "GPU " + worker.gpu);
  if (!worker.cpus.empty()) {
    text += ", cores";
    for (const int cpu : worker.cpus) text.append(" ").append(std::to_string(cpu));
  }
  text += "\n  command:     " + joined(worker.argv) + "\n  environment:";
  for (const auto& [name, value] : worker.environment)
    text.append(" ").append(name).append("=").append(value);
  const auto stream = [](const char* name, const StreamPlan& where) {
    std::string line = std::string("\n  ") + name;
    if (where.console) line += " console";
    if (!where.file.empty()) line += " " + where.file;
    return line + (where.console || !where.file.empty() ? "" : " nowhere");
  };
  return text + stream("stdout:     ", worker.out) + stream("stderr:     ", worker.err) + "\n";
}

// Servers compute on the CPU and are bound to no core.
void add_servers(const LaunchOptions& options, const Environment& environment, const Hardware& hardware,
                 Plan& plan) {
  if (options.servers == 0) return;
  if (!plan.program.uses_dtrain)
    throw UsageError(
        "--servers: expected a program that uses dtrain, since only they can use its parameter servers, "
        "got " +
        plan.program.path);
  const int here = count_servers(options, plan.share);
  for (int i = 0; i < here; ++i) {
    WorkerPlan server;
    server.server = plan.share.group_rank + i * plan.share.nnodes;
    server.rank = plan.share.world_size + *server.server;
    server.local_rank = plan.nproc + i;
    server.argv = plan.program.argv;
    server.environment = base_environment(options, plan, server);
    set_threads(environment, hardware, plan.nproc, true, server.environment);
    plan_output(options, plan, environment, server);
    plan.writes_files |= !server.out.file.empty() || !server.err.file.empty();
    plan.workers.push_back(std::move(server));
  }
}

}  // namespace

int count_workers(const LaunchOptions& options, const Hardware& hardware) {
  switch (options.nproc_kind) {
    case NprocKind::count:
      return options.nproc;
    case NprocKind::automatic:
      return std::max<int>(1, static_cast<int>(hardware.gpus.size()));
    case NprocKind::cpu:
      return usable_cores(hardware.cpus);
    case NprocKind::xpu:
      if (hardware.xpus > 0) return hardware.xpus;
      throw UsageError(
          "--nproc-per-node=xpu: expected a visible Intel GPU, found none (is ZE_AFFINITY_MASK empty, or the "
          "driver not loaded?)");
    case NprocKind::gpu:
      break;
  }
  if (hardware.gpus.empty())
    throw UsageError(
        "--nproc-per-node=gpu: expected a visible GPU, found none (is CUDA_VISIBLE_DEVICES empty, or "
        "the NVIDIA driver not loaded?)");
  return static_cast<int>(hardware.gpus.size());
}

int count_servers(const LaunchOptions& options, const NodeShare& share) {
  return (options.servers - share.group_rank + share.nnodes - 1) / share.nnodes;
}

std::string device_of(const WorkerPlan& worker) {
  if (!worker.gpu.empty()) return "GPU " + worker.gpu;
  return worker.cpus.empty() ? "CPU" : "CPUs " + cpu_list_text(worker.cpus);
}

std::string name_of(const WorkerPlan& worker) {
  return worker.server ? "parameter server " + std::to_string(*worker.server)
                       : "rank " + std::to_string(worker.rank);
}

NodeShare equal_share(const NodePlacement& placement, int nproc) {
  // What a spare would run is only known when it takes a node's place: shown as the last one's.
  const int node = std::min(placement.node_rank.value_or(0), placement.nodes.most - 1);
  return {placement.nodes.most, node, node, node * nproc, placement.nodes.most * nproc};
}

Plan make_plan(const LaunchOptions& options, const NodePlacement& placement, const NodeShare& share,
               const Program& program, const Environment& environment, const Hardware& hardware) {
  Plan plan;
  plan.host = placement.host;
  plan.share = share;
  plan.nproc = count_workers(options, hardware);
  plan.master_addr = placement.master_addr;
  plan.master_port = placement.master_port;
  plan.program = program;
  plan.removed_variables = {"DTRAIN_TOKEN",
                            "DTRAIN_TOKEN_FILE",
                            "DTRAIN_STORE_FD",
                            "DTRAIN_STDERR_TTY",
                            "DTRAIN_COLUMNS",
                            kUseAgentStore,
                            "DTRAIN_LAUNCH_CONFIG",
                            "DTRAIN_SAVING_FILE",
                            "DTRAIN_MET_FILE",
                            "DTRAIN_MEMORY_DIR",
                            kLeaseVariable,
                            kStatusVariable,
                            kServer};
  // Workers get their own; servers have none.
  if (options.servers > 0)
    plan.removed_variables.insert(plan.removed_variables.end(), {"RANK", "ROLE_RANK", "LOCAL_RANK"});
  for (std::string& name : mpi_variables(environment, hardware.before_mpi))
    plan.removed_variables.push_back(std::move(name));
  check_ranks(options, plan);
  check_agent_store(options, program);
  const auto bound = bind_workers(options.binding, plan.nproc, hardware.cpus, hardware.gpu_numa_nodes);
  for (int local_rank = 0; local_rank < plan.nproc; ++local_rank) {
    WorkerPlan worker;
    worker.local_rank = local_rank;
    worker.rank = share.first_rank + local_rank;
    worker.gpu = gpu_of(hardware, local_rank);
    worker.cpus = bound[static_cast<std::size_t>(local_rank)];
    worker.argv = program.argv;
    if (options.pass_local_rank) worker.argv.push_back("--local-rank=" + std::to_string(local_rank));
    worker.environment = base_environment(options, plan, worker);
    set_threads(environment, hardware, plan.nproc, program.uses_dtrain, worker.environment);
    // Python's output reaches a pipe when its buffer is full, and not at all when it is killed.
    if (!program.uses_dtrain && !environment.contains(kUnbuffered)) worker.environment[kUnbuffered] = "1";
    // As torchrun has it; PyTorch's own default is another.
    if (!program.uses_dtrain && !environment.contains(kNcclErrors)) worker.environment[kNcclErrors] = "1";
    plan_output(options, plan, environment, worker);
    plan.writes_files |= !worker.out.file.empty() || !worker.err.file.empty();
    plan.workers.push_back(std::move(worker));
  }
  add_servers(options, environment, hardware, plan);
  return plan;
}

std::string made_run_id(std::int64_t launch_time_ns) { return fmt::format("{:016x}", launch_time_ns); }

std::string error_file_of(const std::string& folder, const WorkerPlan& worker) {
  return folder + "/error_" + std::to_string(worker.rank) + ".json";
}

std::string saving_file_of(const std::string& folder, const WorkerPlan& worker) {
  return folder + "/saving_" + std::to_string(worker.rank);
}

std::string met_file_of(const std::string& folder, const WorkerPlan& worker) {
  return folder + "/met_" + std::to_string(worker.rank);
}

Environment attempt_environment(const Plan& plan, const WorkerPlan& worker, const Attempt& attempt) {
  Environment e;
  e["MASTER_PORT"] = std::to_string(attempt.master_port);
  e["TORCHELASTIC_RESTART_COUNT"] = std::to_string(attempt.restart_count);
  if (!worker.environment.contains(kRunId)) e[kRunId] = made_run_id(attempt.launch_time_ns);
  if (!attempt.error_folder.empty()) {
    e["TORCHELASTIC_ERROR_FILE"] = error_file_of(attempt.error_folder, worker);
    e["DTRAIN_SAVING_FILE"] = saving_file_of(attempt.error_folder, worker);
    const auto role = worker.environment.find(kServer);  // set where there are servers
    if (role != worker.environment.end() && !worker.server)
      e["DTRAIN_MET_FILE"] = met_file_of(attempt.error_folder, worker);
  }
  if (plan.program.uses_dtrain && !attempt.token.empty()) e["DTRAIN_TOKEN"] = attempt.token;
  if (plan.program.uses_dtrain) e["DTRAIN_MEMORY_DIR"] = attempt.memory_folder;
  if (plan.program.uses_dtrain) e["DTRAIN_LAUNCH_TIME_NS"] = std::to_string(attempt.launch_time_ns);
  if (plan.program.uses_dtrain && attempt.store_fd >= 0 && worker.rank == 0)
    e["DTRAIN_STORE_FD"] = std::to_string(attempt.store_fd);
  if (attempt.status_fd >= 0) e[kStatusVariable] = StatusPage::variable(attempt.status_fd, worker.local_rank);
  if (plan.program.uses_dtrain && attempt.lease_fd >= 0) e[kLeaseVariable] = std::to_string(attempt.lease_fd);
  return e;
}

std::string plan_text(const Plan& plan) {
  std::string text = "node " + std::to_string(plan.share.group_rank) + " of " +
                     std::to_string(plan.share.nnodes) + ": " + std::to_string(plan.nproc) + " workers, " +
                     (plan.workers.size() > static_cast<std::size_t>(plan.nproc)
                          ? std::to_string(plan.workers.size() - static_cast<std::size_t>(plan.nproc)) +
                                " parameter servers, "
                          : "") +
                     "world size " + std::to_string(plan.share.world_size) + ", master " + plan.master_addr +
                     ":" + (plan.master_port == 0 ? "(a free port)" : std::to_string(plan.master_port)) +
                     "\nprogram: " + plan.program.path +
                     (plan.program.uses_dtrain ? " (uses dtrain; gets a token for the store)" : "") + "\n";
  for (const WorkerPlan& worker : plan.workers) text += worker_text(plan, worker);
  return text;
}

namespace {

// That of the mpirun which has started this process itself, as on the node where it was called. Below its
// daemons on other nodes nobody can tell what was the user's.
Environment environment_of_mpirun() {
  const std::string folder = "/proc/" + std::to_string(::getppid());
  std::ifstream comm(folder + "/comm"), block(folder + "/environ");
  std::string name;
  std::getline(comm, name);
  if (name != "mpirun" && name != "mpiexec" && name != "orterun" && name != "prterun") return {};
  Environment environment;
  for (std::string entry; std::getline(block, entry, '\0');) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return mpi_variables(environment).empty() ? environment : Environment{};
}

}  // namespace

Hardware read_hardware(const LaunchOptions& options, const Environment& environment) {
  Hardware hardware;
  hardware.before_mpi = environment_of_mpirun();
  const auto value_of = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  // GPUs made of software are counted as those of a machine, and near no core.
  std::optional<int> emulated = options.emulated_gpus;
  if (const auto given = value_of(kEmulatedGpus); given && !emulated) {
    if (const auto number = parse_integer(*given)) emulated = static_cast<int>(*number);
  }
  hardware.gpus = visible_gpus(value_of("CUDA_VISIBLE_DEVICES"), emulated ? *emulated : installed_gpus());
  for (const std::string& gpu : hardware.gpus) {
    if (emulated) break;
    const bool index = !gpu.empty() && gpu.find_first_not_of("0123456789") == std::string::npos;
    hardware.gpu_numa_nodes.push_back(index && gpu.size() < 6 ? numa_node_of_gpu(std::stoi(gpu))
                                                              : std::nullopt);
  }
  if (options.nproc_kind == NprocKind::xpu)
    hardware.xpus = visible_xpus(value_of("ZE_AFFINITY_MASK"), installed_xpus());
  hardware.cpus = read_cpu_layout(options.binding != Binding::none);
  return hardware;
}

}  // namespace dtrain::launcher
