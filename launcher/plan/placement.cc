// Completes options from detection; see the header for who wins.
#include "launcher/plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::uint16_t kMasterPort = 29500;      // torchrun's
constexpr std::uint16_t kRendezvousPort = 29400;  // torchrun's

/// A value with its origin.
template <class T>
struct Known {
  T value;
  std::string how;
};

bool is_mpi(JobSystem system) {
  return system == JobSystem::openmpi || system == JobSystem::hydra || system == JobSystem::pmi ||
         system == JobSystem::pmix;
}

// What is set for the workers of some other launcher does not concern this one.
Environment without_worker_variables(const Environment& environment) {
  Environment own = environment;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) own.erase(name);
  return own;
}

std::string_view starter(JobSystem system) {
  return system == JobSystem::slurm ? "srun" : system == JobSystem::lsf ? "jsrun" : "mpirun";
}

// How to start one launcher a node, by system.
std::string one_a_node(JobSystem system, int tasks) {
  if (system == JobSystem::slurm)
    return fmt::format(
        "srun --ntasks-per-node=1 dtrain-launch …, or without a launcher: srun -n {} dtrain train …", tasks);
  if (system == JobSystem::flux)
    return fmt::format(
        "flux run --nodes=… --tasks-per-node=1 --exclusive dtrain-launch …, or without a launcher: flux run "
        "-n {} "
        "dtrain train …",
        tasks);
  if (system == JobSystem::lsf) return "jsrun --tasks_per_rs=1 --rs_per_host=1 dtrain-launch …";
  const std::string_view map = system == JobSystem::openmpi ? "--map-by ppr:1:node" : "-ppn 1";
  return fmt::format("mpirun {} dtrain-launch …, or without a launcher: mpirun -np {} dtrain train …", map,
                     tasks);
}

class Settler {
 public:
  Settler(const LaunchOptions& options, const Environment& environment, const Machine& machine)
      : options_(options), environment_(environment), machine_(machine) {}

  NodePlacement settle(bool has_token) {
    const bool one_asked = options_.standalone || (options_.nnodes && options_.nnodes->most == 1);
    if (!one_asked) detected_ = detect(without_worker_variables(environment_), machine_);
    placement_.system = detected_.system;
    note("system", std::string(name_of(detected_.system)),
         one_asked ? "one node was requested; nothing else was checked" : how("system"));
    take_host();
    take_launchers();
    take_nodes();
    take_node_rank();
    if (placement_.many()) {
      take_meeting_point(has_token);
    } else {
      take_one_node();
    }
    return std::move(placement_);
  }

 private:
  void note(const std::string& name, std::string value, std::string why) {
    placement_.explanations.push_back({name, std::move(value), std::move(why)});
  }

  std::string how(std::string_view field) const {
    const auto found = detected_.explanations.find(field);
    return found == detected_.explanations.end() ? "" : found->second;
  }

  std::string source(const std::string& option) const {
    const auto found = options_.sources.find(option);
    return fmt::format("--{}, {}", option, found == options_.sources.end() ? "" : found->second);
  }

  void take_host() {
    const std::string* node = find_variable(environment_, "SLURMD_NODENAME");
    const bool slurm = placement_.system == JobSystem::slurm && node != nullptr;
    placement_.host = slurm ? *node : machine_.hostname.substr(0, machine_.hostname.find('.'));
    note("host", placement_.host, slurm ? "SLURMD_NODENAME" : "this machine's name");
  }

  // From the ranks of a scheduler's tasks, one of which is this launcher, to nodes.
  void take_launchers() {
    const int together = detected_.local_world_size.value_or(1);
    // Without a number of workers each would take all of the machine. With one it is meant: several small
    // nodes on one machine, as one tries things out.
    const bool flux = detected_.system == JobSystem::flux;
    if (together > 1 && is_mpi(detected_.system) && options_.nproc_kind == NprocKind::count) {
      note("launchers", fmt::format("{} on this machine", together),
           "each counts as a node; " + source("nproc-per-node") + ", says how many workers it starts");
    } else if (together > 1 && !flux) {
      throw UsageError(fmt::format(
          "{} started {} launchers on this node; expected one per node, which starts the workers itself: {}",
          starter(detected_.system), together,
          one_a_node(detected_.system, detected_.world_size.value_or(together))));
    }
    // Flux spreads tasks as it finds room: this node may have one, and another several.
    if (flux && detected_.world_size.value_or(0) > detected_.nnodes.value_or(1))
      throw UsageError(fmt::format(
          "flux run started {} launchers on {} node{}; expected one per node, which starts the workers "
          "itself: {}",
          *detected_.world_size, detected_.nnodes.value_or(1), detected_.nnodes.value_or(1) == 1 ? "" : "s",
          one_a_node(detected_.system, *detected_.world_size)));
    nnodes_ = detected_.nnodes;
    node_rank_ = detected_.node_rank;
    nnodes_how_ = how("nnodes");
    node_rank_how_ = how("node_rank");
    if (!is_mpi(detected_.system) && detected_.system != JobSystem::lsf) return;
    if (detected_.world_size) {
      nnodes_ = detected_.world_size;
      nnodes_how_ = how("world_size") + ", one launcher per node";
    }
    if (detected_.rank) {
      node_rank_ = detected_.rank;
      node_rank_how_ = how("rank") + ", one launcher per node";
    }
  }

  void take_nodes() {
    placement_.spares = options_.spares;
    if (options_.nnodes) {
      placement_.nodes = *options_.nnodes;
      nnodes_how_ = source("nnodes");
    } else if (nnodes_) {
      if (*nnodes_ <= options_.spares)
        throw UsageError(fmt::format("--spares: expected fewer than the {} launchers ({}), got {}", *nnodes_,
                                     nnodes_how_, options_.spares));
      placement_.nodes = {*nnodes_ - options_.spares, *nnodes_ - options_.spares};
      if (options_.spares > 0) nnodes_how_ += fmt::format(", less {}", source("spares"));
    } else if (node_rank_.value_or(0) > 0) {
      throw UsageError(fmt::format("--nnodes is needed: this is node {} ({}), and {}", *node_rank_,
                                   node_rank_how_,
                                   nnodes_how_.empty() ? "the number of nodes is not known" : nnodes_how_));
    } else {
      nnodes_how_ = "the default";
    }
    note("nnodes",
         placement_.nodes.least == placement_.nodes.most
             ? fmt::format("{}", placement_.nodes.most)
             : fmt::format("{}:{}", placement_.nodes.least, placement_.nodes.most),
         nnodes_how_);
    if (placement_.spares > 0) note("spares", fmt::format("{}", placement_.spares), source("spares"));
  }

  void take_node_rank() {
    if (options_.node_rank) {
      placement_.node_rank = options_.node_rank;
      node_rank_how_ = source("node-rank");
    } else if (placement_.many()) {
      placement_.node_rank = node_rank_;
    } else {
      placement_.node_rank = 0;
      node_rank_how_ = "the only node";
    }
    if (placement_.node_rank.value_or(0) >= placement_.nodes.most + placement_.spares)
      throw UsageError(
          fmt::format("--node-rank: expected 0 to {} with --nnodes={}{}, got {} ({})",
                      placement_.nodes.most + placement_.spares - 1, placement_.nodes.most,
                      placement_.spares > 0 ? fmt::format(" and --spares={}", placement_.spares) : "",
                      *placement_.node_rank, node_rank_how_));
    if (!placement_.node_rank && !options_.rdzv_endpoint)
      throw UsageError(fmt::format("--node-rank is needed with --nnodes={}: which node this is, from 0{}",
                                   shown_nodes(), node_rank_how_.empty() ? "" : " (" + node_rank_how_ + ")"));
    note("node_rank", placement_.node_rank ? fmt::format("{}", *placement_.node_rank) : "unknown",
         placement_.node_rank ? node_rank_how_ : "the rendezvous gives one");
  }

  std::string shown_nodes() const {
    return placement_.nodes.least == placement_.nodes.most
               ? fmt::format("{}", placement_.nodes.most)
               : fmt::format("{}:{}", placement_.nodes.least, placement_.nodes.most);
  }

  // In a batch script everything looks as if there were one node.
  void note_forgotten_nodes() {
    const std::string* nodes = find_variable(environment_, "SLURM_JOB_NUM_NODES");
    if (detected_.system != JobSystem::none || nodes == nullptr || *nodes == "1" || how("system").empty())
      return;
    placement_.notes.push_back(
        fmt::format("this Slurm job has {} nodes, but a launcher without srun is on one of them only: srun "
                    "--ntasks-per-node=1 dtrain-launch … uses all, --standalone confirms that one is meant",
                    *nodes));
  }

  void take_one_node() {
    note_forgotten_nodes();
    const auto& endpoint = options_.rdzv_endpoint;
    placement_.master_addr = !options_.master_addr.empty() ? options_.master_addr
                             : endpoint                    ? endpoint->host
                                                           : "127.0.0.1";
    placement_.master_port = options_.master_port.value_or(endpoint ? endpoint->port : 0);
    note("master_addr", placement_.master_addr,
         !options_.master_addr.empty() ? source("master-addr")
         : endpoint                    ? source("rdzv-endpoint")
                                       : "one node");
    note("master_port",
         placement_.master_port == 0 ? "a free one" : fmt::format("{}", placement_.master_port),
         options_.master_port ? source("master-port")
         : endpoint           ? source("rdzv-endpoint")
                              : "one node");
  }

  void take_meeting_point(bool has_token) {
    placement_.hosts = detected_.hosts;
    take_master();
    placement_.ask_mpi =
        is_mpi(placement_.system) && (placement_.master_addr.empty() || (!has_token && !options_.insecure));
    if (placement_.master_addr.empty() && !placement_.ask_mpi)
      throw UsageError(fmt::format(
          "--master-addr is needed with --nnodes={}: the address of node 0, the same on every node{}",
          shown_nodes(), how("master_addr").empty() ? "" : " (" + how("master_addr") + ")"));
    take_rendezvous();
    const auto shown = [&](const std::string& value) {
      return placement_.master_addr.empty() ? "determined when launchers start" : value;
    };
    note("master_addr", shown(placement_.master_addr), master_how_);
    note("master_port",
         placement_.master_port == 0 ? "one that node 0 picks" : fmt::format("{}", placement_.master_port),
         port_how_);
    note("rendezvous", shown(placement_.rendezvous.text()), rendezvous_how_);
  }

  void take_master() {
    const auto& endpoint = options_.rdzv_endpoint;
    if (!options_.master_addr.empty()) {
      placement_.master_addr = options_.master_addr;
      master_how_ = source("master-addr");
    } else if (endpoint) {
      placement_.master_addr = endpoint->host;
      master_how_ = source("rdzv-endpoint");
    } else if (detected_.master_addr) {
      placement_.master_addr = *detected_.master_addr;
      master_how_ = how("master_addr");
    } else {
      master_how_ = "exchanged over MPI by dtrain-mpi-exchange";
    }
    if (options_.master_port) {
      placement_.master_port = *options_.master_port;
      port_how_ = source("master-port");
    } else if (detected_.master_port) {
      placement_.master_port = *detected_.master_port;
      port_how_ = how("master_port");
    } else if (endpoint || placement_.master_addr.empty()) {
      port_how_ = "free on node 0 when the workers start";
    } else {
      placement_.master_port = kMasterPort;
      port_how_ = "the default";
      if (!how("master_port").empty()) port_how_ += "; " + how("master_port");
    }
  }

  void take_rendezvous() {
    if (options_.rdzv_endpoint) {
      placement_.rendezvous = *options_.rdzv_endpoint;
      if (placement_.rendezvous.port == 0) placement_.rendezvous.port = kRendezvousPort;
      rendezvous_how_ = source("rdzv-endpoint");
    } else if (placement_.master_addr.empty()) {
      rendezvous_how_ = "exchanged over MPI by dtrain-mpi-exchange";
    } else {
      const int port = (placement_.master_port == 0 ? kMasterPort : placement_.master_port) + 1;
      if (port > 65535)
        throw UsageError(
            "--master-port: expected at most 65534, because launchers meet on the next port, got 65535; or "
            "give --rdzv-endpoint");
      placement_.rendezvous = {placement_.master_addr, static_cast<std::uint16_t>(port)};
      rendezvous_how_ = "the port after the master's";
    }
  }

  const LaunchOptions& options_;
  const Environment& environment_;
  const Machine& machine_;
  Placement detected_;
  NodePlacement placement_;
  std::optional<int> nnodes_, node_rank_;
  std::string nnodes_how_, node_rank_how_, master_how_, port_how_, rendezvous_how_;
};

}  // namespace

NodePlacement settle_placement(const LaunchOptions& options, const Environment& environment,
                               const Machine& machine, bool has_token) {
  return Settler(options, environment, machine).settle(has_token);
}

std::string explanation_text(const NodePlacement& placement) {
  std::string text;
  for (const Explanation& line : placement.explanations)
    text += fmt::format("{:<15} {:<24}{}\n", line.name, line.value, line.how.empty() ? "" : "  " + line.how);
  return text;
}

namespace {

// How the variables begin that mpirun, mpiexec and their daemons set. What users set for Open MPI looks
// alike: OMPI_ALLOW_RUN_AS_ROOT, OMPI_CC, OMPI_MCA_btl, OMPI_MCA_orte_default_hostfile.
constexpr std::array kMpiVariables = {"OMPI_COMM_WORLD_",
                                      "OMPI_APP_CTX_",
                                      "OMPI_ARGV",
                                      "OMPI_COMMAND",
                                      "OMPI_FILE_LOCATION",
                                      "OMPI_FIRST_RANKS",
                                      "OMPI_NUM_APP",
                                      "OMPI_UNIVERSE_",
                                      "OMPI_MCA_ess",
                                      "OMPI_MCA_initial_wdir",
                                      "OMPI_MCA_mpi_oversubscribe",
                                      "OMPI_MCA_orte_app_num",
                                      "OMPI_MCA_orte_bound_at_launch",
                                      "OMPI_MCA_orte_cpu_type",
                                      "OMPI_MCA_orte_ess_",
                                      "OMPI_MCA_orte_hnp_uri",
                                      "OMPI_MCA_orte_jobfam_session_dir",
                                      "OMPI_MCA_orte_launch",
                                      "OMPI_MCA_orte_local_daemon_uri",
                                      "OMPI_MCA_orte_node_regex",
                                      "OMPI_MCA_orte_num_nodes",
                                      "OMPI_MCA_orte_parent_uri",
                                      "OMPI_MCA_orte_precondition_transports",
                                      "OMPI_MCA_orte_tmpdir_base",
                                      "OMPI_MCA_orte_top_session_dir",
                                      "OMPI_MCA_pmix",
                                      "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                                      "PMIX_",
                                      "PMI_",
                                      "ORTE_",
                                      "PRTE_",
                                      "HYDRA",
                                      "HYDI_",
                                      "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS",
                                      "OPAL_"};
// The same, whole: set by mpirun for its own options and by its daemons, and by users just as well.
constexpr std::array kMpiNames = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_plm",
                                  "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_routed"};

bool is_set_by_mpi(const std::string& name, const std::string& value, const Environment& before_mpi) {
  const auto begins = [&name](const char* prefix) { return name.starts_with(prefix); };
  if (std::any_of(kMpiVariables.begin(), kMpiVariables.end(), begins)) return true;
  const std::string* before = find_variable(before_mpi, name);
  return std::find(kMpiNames.begin(), kMpiNames.end(), name) != kMpiNames.end() &&
         (before == nullptr || *before != value);
}

}  // namespace

std::vector<std::string> mpi_variables(const Environment& environment, const Environment& before_mpi) {
  const auto present = [&](const char* name) { return find_variable(environment, name) != nullptr; };
  if (!present("OMPI_COMM_WORLD_RANK") && !present("PMIX_RANK") && !present("PMI_RANK")) return {};
  std::vector<std::string> names;
  for (const auto& [name, value] : environment) {
    if (is_set_by_mpi(name, value, before_mpi)) names.push_back(name);
  }
  return names;
}

}  // namespace dtrain::launcher
