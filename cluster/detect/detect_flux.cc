// Flux (https://flux-framework.org): a task's variables say which rank it is, but neither the job's hosts nor
// how many tasks are on each; flux itself does.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/detect/cpus.h"
#include "cluster/detect/detect_reader.h"
#include "cluster/detect/nodelist.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr const char* kHosts = "`flux hostlist local`";
constexpr const char* kTasks = "`flux job taskmap`";

std::string without_line_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// The first host runs task 0, however tasks are laid out.
void take_hosts(PlacementReader& reader) {
  const auto text = reader.machine().output_of({"flux", "hostlist", "local"});
  if (!text) {
    if (!reader.placement.master_addr)
      reader.note("master_addr", fmt::format("{} gave no answer here; set MASTER_ADDR", kHosts));
    return;
  }
  const std::string list = without_line_end(*text);
  const auto hosts = expand_nodelist(list, kHosts);
  if (hosts.size() != static_cast<std::size_t>(*reader.placement.nnodes))
    throw UsageError(fmt::format("{}: expected {} hosts, as FLUX_JOB_NNODES says, got {}: '{}'", kHosts,
                                 *reader.placement.nnodes, hosts.size(), list));
  reader.placement.hosts = hosts;
  reader.set(&Placement::master_addr, "master_addr", hosts.front(), fmt::format("first host of {}", kHosts));
}

// "0-3;4-7": the tasks of each node.
void take_tasks(PlacementReader& reader) {
  const auto text = reader.machine().output_of(
      {"flux", "job", "taskmap", "--to=raw", std::string(reader.text("FLUX_JOB_ID"))});
  const std::string map = without_line_end(text.value_or(""));
  std::string_view rest = map;
  for (int node = 0; !rest.empty(); ++node) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    const CpuList tasks = parse_cpu_list(std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (std::ranges::find(tasks, *reader.placement.rank) == tasks.end()) continue;
    reader.set(&Placement::node_rank, "node_rank", node, kTasks);
    reader.set(&Placement::local_world_size, "local_world_size", static_cast<int>(tasks.size()), kTasks);
    return;
  }
  for (const char* field : {"node_rank", "local_world_size"})
    reader.note(field, fmt::format("{} does not say; Flux sets no variable for it", kTasks));
}

}  // namespace

bool detect_flux(PlacementReader& reader) {
  if (!reader.has("FLUX_JOB_ID") || !reader.has("FLUX_TASK_RANK")) return false;
  reader.placement.system = JobSystem::flux;
  reader.note("system", "FLUX_JOB_ID and FLUX_TASK_RANK are set");
  reader.take_rank(&Placement::rank, "rank", {"FLUX_TASK_RANK"});
  reader.take_size(&Placement::world_size, "world_size", {"FLUX_JOB_SIZE"});
  reader.take_rank(&Placement::local_rank, "local_rank", {"FLUX_TASK_LOCAL_ID"});
  reader.take_size(&Placement::nnodes, "nnodes", {"FLUX_JOB_NNODES"});
  const Placement& known = reader.placement;
  if (!known.rank || !known.world_size || !known.nnodes || *known.nnodes == 1) {
    if (known.world_size && known.nnodes)
      reader.set(&Placement::local_world_size, "local_world_size", *known.world_size,
                 "FLUX_JOB_SIZE, on one node");
    return true;
  }
  if (known.world_size == known.nnodes) {
    reader.set(&Placement::node_rank, "node_rank", *known.rank, "FLUX_TASK_RANK, one task per node");
    reader.set(&Placement::local_world_size, "local_world_size", 1, "FLUX_JOB_SIZE is FLUX_JOB_NNODES");
  } else {
    take_tasks(reader);
  }
  take_hosts(reader);
  reader.set(
      &Placement::master_port, "master_port",
      derive_port(reader.text(reader.has("FLUX_JOB_ID_PATH") ? "FLUX_JOB_ID_PATH" : "FLUX_JOB_ID"), ""),
      "derived from the job's id; MASTER_PORT chooses another");
  return true;
}

}  // namespace dtrain
