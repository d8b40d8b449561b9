// One function a system: which variables say that it is there, and what each of its variables means.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "cluster/detect/detect_reader.h"
#include "cluster/detect/nodelist.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::uint16_t kDefaultPort = 29500;
std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

// Distinct lines in the order of their first appearance; hosts are listed once for every slot.
std::vector<std::string> distinct_lines(std::string_view content) {
  std::vector<std::string> lines;
  std::unordered_set<std::string> seen;
  while (!content.empty() && lines.size() <= kMaxNodes) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty() && seen.emplace(line).second) lines.emplace_back(line);
  }
  return lines;
}

// nnodes, node_rank and master from an ordered list of hosts.
void take_hosts(PlacementReader& reader, const std::vector<std::string>& hosts, const std::string& source,
                std::string_view job) {
  if (hosts.empty()) return;
  reader.placement.hosts = hosts;
  reader.set(&Placement::nnodes, "nnodes", static_cast<int>(hosts.size()), "hosts in " + source);
  reader.set(&Placement::master_addr, "master_addr", hosts.front(), "first host in " + source);
  reader.set(&Placement::master_port, "master_port", derive_port(job, ""), "derived from the job's number");
  const std::string_view here = short_name(reader.machine().hostname);
  for (std::size_t i = 0; i < hosts.size() && !here.empty(); ++i) {
    if (short_name(hosts[i]) == here)
      reader.set(&Placement::node_rank, "node_rank", static_cast<int>(i), "this host's place in " + source);
  }
  if (!reader.placement.node_rank)
    reader.note("node_rank", fmt::format("this host, '{}', is not in {}", reader.machine().hostname, source));
}

// Of a step that spans components of a heterogeneous job, Slurm sorts the list of nodes and numbers the nodes
// by component: neither the first node nor the number of tasks on this one can be told.
void refuse_heterogeneous_step(const PlacementReader& reader, const std::vector<std::string>& step) {
  const auto components = reader.number("SLURM_HET_SIZE", 1);
  for (int i = 0; components && i < *components; ++i) {
    const std::string variable = fmt::format("SLURM_JOB_NODELIST_HET_GROUP_{}", i);
    if (!reader.has(variable)) return;
    const auto nodes = expand_nodelist(reader.text(variable), variable);
    const std::unordered_set<std::string> component(nodes.begin(), nodes.end());
    if (std::ranges::all_of(step, [&](const std::string& node) { return component.contains(node); })) return;
  }
  if (components)
    throw UsageError(fmt::format(
        "SLURM_STEP_NODELIST: expected the nodes of one component of this heterogeneous Slurm job, got "
        "nodes of several: '{}'; start a step on one of its {} components (srun's het-group)",
        reader.text("SLURM_STEP_NODELIST"), *components));
}

// All nodes must see the same one first.
void check_own_place(const PlacementReader& reader, const std::vector<std::string>& step) {
  if (!reader.has("SLURMD_NODENAME") || !reader.placement.node_rank) return;
  const auto place = static_cast<std::size_t>(*reader.placement.node_rank);
  if (place >= step.size() || step[place] == reader.text("SLURMD_NODENAME")) return;
  throw UsageError(fmt::format(
      "SLURM_NODEID: expected this node, {}, at place {} of SLURM_STEP_NODELIST='{}', got {}, so the first "
      "node is not known; a heterogeneous step (srun … : …) is not supported: start one srun of "
      "one kind of node",
      reader.text("SLURMD_NODENAME"), place, reader.text("SLURM_STEP_NODELIST"), step[place]));
}

}  // namespace

bool detect_plain(PlacementReader& reader) {
  if (!reader.has("RANK") || !reader.has("WORLD_SIZE")) return false;
  reader.placement.system = JobSystem::environment;
  reader.note("system", "RANK and WORLD_SIZE are set");
  reader.take_rank(&Placement::rank, "rank", {"RANK"});
  reader.take_size(&Placement::world_size, "world_size", {"WORLD_SIZE"});
  reader.take_rank(&Placement::local_rank, "local_rank", {"LOCAL_RANK"});
  reader.take_size(&Placement::local_world_size, "local_world_size", {"LOCAL_WORLD_SIZE"});
  reader.take_rank(&Placement::node_rank, "node_rank", {"GROUP_RANK", "NODE_RANK"});
  reader.take_size(&Placement::nnodes, "nnodes", {"GROUP_WORLD_SIZE", "NNODES"});
  return true;
}

bool detect_openmpi(PlacementReader& reader) {
  if (!reader.has("OMPI_COMM_WORLD_RANK")) return false;
  reader.placement.system = JobSystem::openmpi;
  reader.note("system", "OMPI_COMM_WORLD_RANK is set");
  reader.take_rank(&Placement::rank, "rank", {"OMPI_COMM_WORLD_RANK"});
  reader.take_size(&Placement::world_size, "world_size", {"OMPI_COMM_WORLD_SIZE"});
  reader.take_rank(&Placement::local_rank, "local_rank", {"OMPI_COMM_WORLD_LOCAL_RANK"});
  reader.take_size(&Placement::local_world_size, "local_world_size", {"OMPI_COMM_WORLD_LOCAL_SIZE"});
  // OMPI_COMM_WORLD_NODE_RANK is the rank among all jobs on the node, not the node's.
  reader.note("node_rank", "Open MPI does not say");
  reader.note("nnodes", "Open MPI does not say");
  if (!reader.placement.master_addr) reader.note("master_addr", "peers meet through MPI itself");
  return true;
}

bool detect_hydra(PlacementReader& reader) {
  // PMI_RANK alone may be Slurm's; these come from MPICH's and Intel's own mpiexec, which wins over a Slurm
  // allocation.
  if (!reader.has("PMI_RANK") || !reader.has("MPI_LOCALRANKID")) return false;
  reader.placement.system = JobSystem::hydra;
  reader.note("system", "PMI_RANK and MPI_LOCALRANKID are set");
  reader.take_rank(&Placement::rank, "rank", {"PMI_RANK"});
  reader.take_size(&Placement::world_size, "world_size", {"PMI_SIZE"});
  reader.take_rank(&Placement::local_rank, "local_rank", {"MPI_LOCALRANKID"});
  reader.take_size(&Placement::local_world_size, "local_world_size", {"MPI_LOCALNRANKS"});
  reader.note("node_rank", "MPICH does not say");
  reader.note("nnodes", "MPICH does not say");
  return true;
}

bool detect_pmi(PlacementReader& reader) {
  if (!reader.has("PMI_RANK")) return false;
  reader.placement.system = JobSystem::pmi;
  reader.note("system", "PMI_RANK is set");
  reader.take_rank(&Placement::rank, "rank", {"PMI_RANK"});
  reader.take_size(&Placement::world_size, "world_size", {"PMI_SIZE"});
  return true;
}

bool detect_pmix(PlacementReader& reader) {
  if (!reader.has("PMIX_RANK") || !reader.has("PMIX_NAMESPACE")) return false;
  reader.placement.system = JobSystem::pmix;
  reader.note("system", "PMIX_RANK and PMIX_NAMESPACE are set");
  reader.take_rank(&Placement::rank, "rank", {"PMIX_RANK"});
  for (const char* field :
       {"world_size", "local_rank", "local_world_size", "node_rank", "nnodes", "master_addr"}) {
    if (!reader.placement.explanations.contains(field)) reader.note(field, "known only through a PMIx query");
  }
  return true;
}

bool detect_slurm(PlacementReader& reader) {
  if (!reader.has("SLURM_JOB_ID")) return false;
  // The batch script has SLURM_PROCID=0 as well; only steps know how many tasks they are.
  if (!reader.has("SLURM_PROCID") || !reader.has("SLURM_STEP_NUM_TASKS")) {
    reader.note(
        "system",
        "inside a Slurm job but in no step (SLURM_STEP_NUM_TASKS is not set); start it with srun to use "
        "all of the job's nodes");
    return false;
  }
  reader.placement.system = JobSystem::slurm;
  reader.note("system", "SLURM_JOB_ID, SLURM_PROCID and SLURM_STEP_NUM_TASKS are set");
  reader.take_rank(&Placement::rank, "rank", {"SLURM_PROCID"});
  reader.take_size(&Placement::world_size, "world_size", {"SLURM_STEP_NUM_TASKS"});
  reader.take_rank(&Placement::local_rank, "local_rank", {"SLURM_LOCALID"});
  reader.take_rank(&Placement::node_rank, "node_rank", {"SLURM_NODEID"});
  reader.take_size(&Placement::nnodes, "nnodes", {"SLURM_STEP_NUM_NODES"});

  const auto disagree = [&](std::string_view variable, std::size_t found) {
    throw UsageError(fmt::format("{}: expected {} nodes, as {} says, got {}: '{}'", variable,
                                 *reader.placement.nnodes, reader.placement.explanations.at("nnodes"), found,
                                 reader.text(variable)));
  };
  if (reader.has("SLURM_STEP_NODELIST")) {
    const auto hosts = expand_nodelist(reader.text("SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST");
    reader.set(&Placement::nnodes, "nnodes", static_cast<int>(hosts.size()), "hosts in SLURM_STEP_NODELIST");
    if (hosts.size() != static_cast<std::size_t>(*reader.placement.nnodes))
      disagree("SLURM_STEP_NODELIST", hosts.size());
    refuse_heterogeneous_step(reader, hosts);
    check_own_place(reader, hosts);
    reader.placement.hosts = hosts;
    reader.set(&Placement::master_addr, "master_addr", hosts.front(), "first host in SLURM_STEP_NODELIST");
    reader.set(&Placement::master_port, "master_port",
               derive_port(reader.text("SLURM_JOB_ID"), reader.text("SLURM_STEP_ID")),
               "derived from SLURM_JOB_ID and SLURM_STEP_ID; MASTER_PORT chooses another");
  }
  if (reader.has("SLURM_STEP_TASKS_PER_NODE") && reader.placement.node_rank) {
    const auto tasks =
        expand_tasks_per_node(reader.text("SLURM_STEP_TASKS_PER_NODE"), "SLURM_STEP_TASKS_PER_NODE");
    reader.set(&Placement::nnodes, "nnodes", static_cast<int>(tasks.size()),
               "entries in SLURM_STEP_TASKS_PER_NODE");
    if (tasks.size() != static_cast<std::size_t>(*reader.placement.nnodes))
      disagree("SLURM_STEP_TASKS_PER_NODE", tasks.size());
    const auto node = static_cast<std::size_t>(*reader.placement.node_rank);
    if (node < tasks.size())
      reader.set(&Placement::local_world_size, "local_world_size", tasks[node],
                 "SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID");
  }
  return true;
}

bool detect_lsf(PlacementReader& reader) {
  if (!reader.has("LSB_JOBID") || !reader.has("JSM_NAMESPACE_RANK")) return false;
  reader.placement.system = JobSystem::lsf;
  reader.note("system", "LSB_JOBID and JSM_NAMESPACE_RANK are set");
  reader.take_rank(&Placement::rank, "rank", {"JSM_NAMESPACE_RANK"});
  reader.take_size(&Placement::world_size, "world_size", {"JSM_NAMESPACE_SIZE"});
  reader.take_rank(&Placement::local_rank, "local_rank", {"JSM_NAMESPACE_LOCAL_RANK"});
  reader.take_size(&Placement::local_world_size, "local_world_size", {"JSM_NAMESPACE_LOCAL_SIZE"});
  const std::string path(reader.text("LSB_DJOB_RANKFILE"));
  if (const auto content = path.empty() ? std::nullopt : reader.machine().read_file(path)) {
    std::vector<std::string> hosts = distinct_lines(*content);
    // The first line is the host of the batch script, which runs no tasks.
    if (hosts.size() > 1) hosts.erase(hosts.begin());
    take_hosts(reader, hosts, "LSB_DJOB_RANKFILE", reader.text("LSB_JOBID"));
  }
  return true;
}

bool detect_kubeflow(PlacementReader& reader) {
  if (!reader.has("PET_NNODES") || !reader.has("PET_NODE_RANK")) return false;
  reader.placement.system = JobSystem::kubeflow;
  reader.note("system", "PET_NNODES and PET_NODE_RANK are set");
  reader.take_rank(&Placement::node_rank, "node_rank", {"PET_NODE_RANK"});
  const std::string_view nodes = reader.text("PET_NNODES");
  const std::size_t colon = nodes.find(':');
  if (colon == std::string_view::npos) {
    reader.take_size(&Placement::nnodes, "nnodes", {"PET_NNODES"});
  } else if (nodes.substr(0, colon) == nodes.substr(colon + 1)) {
    const Environment both{{"PET_NNODES", std::string(nodes.substr(0, colon))}};
    reader.set(&Placement::nnodes, "nnodes", *PlacementReader(both, reader.machine()).number("PET_NNODES", 1),
               "PET_NNODES");
  } else {
    reader.note("nnodes", fmt::format("PET_NNODES={} leaves it open", nodes));
  }
  const std::string_view workers = reader.text("PET_NPROC_PER_NODE");
  if (workers == "auto" || workers == "gpu" || workers == "cpu")
    reader.note("nproc_per_node", fmt::format("PET_NPROC_PER_NODE={} leaves it to the launcher", workers));
  else
    reader.take_size(&Placement::nproc_per_node, "nproc_per_node", {"PET_NPROC_PER_NODE"});
  reader.take_master("PET_MASTER_ADDR", "PET_MASTER_PORT");
  return true;
}

bool detect_kubernetes(PlacementReader& reader) {
  if (!reader.has("KUBERNETES_SERVICE_HOST") || !reader.has("JOB_COMPLETION_INDEX")) return false;
  reader.placement.system = JobSystem::kubernetes;
  reader.note("system", "KUBERNETES_SERVICE_HOST and JOB_COMPLETION_INDEX are set");
  reader.take_rank(&Placement::node_rank, "node_rank", {"JOB_COMPLETION_INDEX"});
  reader.take_size(&Placement::nnodes, "nnodes", {"NNODES"});
  if (!reader.placement.nnodes)
    reader.note("nnodes", "not set in an indexed job; set NNODES to the job's completions");
  // Pods of an indexed job are called <job>-<index>; /etc/hosts has their full name when the job has a
  // subdomain.
  const std::string_view host = short_name(reader.machine().hostname);
  const std::string suffix = fmt::format("-{}", reader.text("JOB_COMPLETION_INDEX"));
  const auto hosts = reader.machine().read_file("/etc/hosts");
  const std::size_t at =
      hosts && host.ends_with(suffix) ? hosts->find(std::string(host) + ".") : std::string::npos;
  if (at == std::string::npos) {
    if (!reader.placement.master_addr)
      reader.note("master_addr", "the pod has no subdomain (a headless service); set MASTER_ADDR");
    return true;
  }
  const std::string_view rest = std::string_view(*hosts).substr(at + host.size() + 1);
  const std::string_view subdomain = rest.substr(0, rest.find_first_of(". \t\n"));
  const std::string_view job = host.substr(0, host.size() - suffix.size());
  reader.set(&Placement::master_addr, "master_addr", fmt::format("{}-0.{}", job, subdomain),
             "the job's first pod, from this pod's name in /etc/hosts");
  reader.set(&Placement::master_port, "master_port", kDefaultPort, "the default");
  return true;
}

bool detect_pbs(PlacementReader& reader) {
  if (!reader.has("PBS_ENVIRONMENT") || !reader.has("PBS_JOBID")) return false;
  reader.placement.system = JobSystem::pbs;
  reader.note("system", "PBS_ENVIRONMENT and PBS_JOBID are set");
  const std::string path(reader.text("PBS_NODEFILE"));
  const auto content = path.empty() ? std::nullopt : reader.machine().read_file(path);
  if (content)
    take_hosts(reader, distinct_lines(*content), "PBS_NODEFILE", reader.text("PBS_JOBID"));
  else
    reader.note("nnodes", "PBS_NODEFILE is not set or cannot be read");
  return true;
}

}  // namespace dtrain
