// Order of precedence, checks that hold for every system, and the explanation.
#include "cluster/detect/detect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <fstream>
#include <sstream>

#include "cluster/detect/command.h"
#include "cluster/detect/detect_reader.h"
#include "cluster/net/endpoint.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// More than any machine has; keeps products of two in range.
constexpr int kMaxNumber = 1 << 24;

// Below the range from which the kernel picks ports for outgoing connections.
constexpr std::uint16_t kFirstDerivedPort = 20000;
constexpr std::uint64_t kDerivedPorts = 10000;

constexpr std::chrono::seconds kCommandPatience{20};  // of a busy batch system

void check_below(const PlacementReader& reader, std::string_view low_name, const std::optional<int>& low,
                 std::string_view high_name, const std::optional<int>& high) {
  if (!low || !high || *low < *high) return;
  const auto how = [&](std::string_view name) {
    const auto entry = reader.placement.explanations.find(name);
    return entry == reader.placement.explanations.end() ? std::string() : entry->second;
  };
  throw UsageError(fmt::format("{}: expected {} below {}, got {} ({}) and {} ({})",
                               name_of(reader.placement.system), low_name, high_name, *low, how(low_name),
                               *high, how(high_name)));
}

// What follows from the rest, whatever the system.
void complete(PlacementReader& reader) {
  Placement& placement = reader.placement;
  if (placement.world_size && placement.local_world_size &&
      *placement.world_size == *placement.local_world_size) {
    reader.set(&Placement::nnodes, "nnodes", 1, "all ranks are on this node");
    reader.set(&Placement::node_rank, "node_rank", 0, "all ranks are on this node");
  }
  if (placement.local_world_size)
    reader.set(&Placement::nproc_per_node, "nproc_per_node", *placement.local_world_size, "local_world_size");
  check_below(reader, "rank", placement.rank, "world_size", placement.world_size);
  check_below(reader, "local_rank", placement.local_rank, "local_world_size", placement.local_world_size);
  check_below(reader, "node_rank", placement.node_rank, "nnodes", placement.nnodes);
}

template <class T>
void describe(std::string& text, const Placement& placement, std::string_view name,
              const std::optional<T>& value) {
  const auto entry = placement.explanations.find(name);
  if (!value && entry == placement.explanations.end()) return;
  const std::string shown = value ? fmt::format("{}", *value) : "unknown";
  const std::string how = entry == placement.explanations.end() ? "" : fmt::format("  ({})", entry->second);
  text += fmt::format("{:<17} {}{}\n", name, shown, how);
}

}  // namespace

std::string_view name_of(JobSystem system) noexcept {
  constexpr std::array<std::string_view, 12> kNames = {"none",  "environment", "openmpi",  "hydra",
                                                       "slurm", "pmi",         "pmix",     "lsf",
                                                       "pbs",   "flux",        "kubeflow", "kubernetes"};
  return kNames[static_cast<std::size_t>(system)];
}

std::uint16_t derive_port(std::string_view job, std::string_view step) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const std::string_view text : {job, std::string_view("/"), step}) {
    for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 1099511628211ULL;
  }
  return static_cast<std::uint16_t>(kFirstDerivedPort + hash % kDerivedPorts);
}

std::string_view PlacementReader::text(std::string_view variable) const {
  const std::string* value = find_variable(environment_, variable);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

std::optional<int> PlacementReader::number(std::string_view variable, int least) const {
  const std::string_view value = text(variable);
  if (value.empty()) return std::nullopt;
  int number = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (code != std::errc{} || end != value.data() + value.size() || number < least || number > kMaxNumber)
    throw UsageError(
        fmt::format("{}: expected a number from {} to {}, got '{}'", variable, least, kMaxNumber, value));
  return number;
}

void PlacementReader::take(std::optional<int> Placement::*field, std::string_view name,
                           const std::vector<std::string_view>& variables, int least) {
  for (const std::string_view variable : variables) {
    if (const std::optional<int> value = number(variable, least)) {
      set(field, name, *value, std::string(variable));
      return;
    }
  }
}

void PlacementReader::take_rank(std::optional<int> Placement::*field, std::string_view name,
                                std::vector<std::string_view> variables) {
  take(field, name, variables, 0);
}

void PlacementReader::take_size(std::optional<int> Placement::*field, std::string_view name,
                                std::vector<std::string_view> variables) {
  take(field, name, variables, 1);
}

void PlacementReader::take_master(std::string_view address_variable, std::string_view port_variable) {
  if (has(address_variable))
    set(&Placement::master_addr, "master_addr", std::string(text(address_variable)),
        std::string(address_variable));
  if (is_service_link(text(port_variable)))
    note("master_port", fmt::format("{}={} is a variable of a Kubernetes service, not a port; ignored",
                                    port_variable, text(port_variable)));
  else if (has(port_variable))
    set(&Placement::master_port, "master_port", parse_port(text(port_variable), port_variable),
        std::string(port_variable));
}

Machine this_machine() {
  Machine machine;
  char name[HOST_NAME_MAX + 1] = "";
  if (::gethostname(name, sizeof name - 1) == 0) machine.hostname = name;
  machine.read_file = [](const std::string& path) -> std::optional<std::string> {
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    std::ostringstream content;
    content << in.rdbuf();
    return content.str();
  };
  machine.output_of = [](const std::vector<std::string>& argv) {
    return output_of(argv, Deadline::after(kCommandPatience));
  };
  return machine;
}

Placement detect(const Environment& environment, const Machine& machine) {
  PlacementReader reader(environment, machine);
  reader.take_master("MASTER_ADDR", "MASTER_PORT");
  for (const auto present :
       {detect_plain, detect_lsf, detect_openmpi, detect_hydra, detect_flux, detect_slurm, detect_pmi,
        detect_pmix, detect_kubeflow, detect_kubernetes, detect_pbs}) {
    if (present(reader)) break;
  }
  if (reader.placement.system == JobSystem::none && reader.has("RANK"))
    throw UsageError("RANK is set but WORLD_SIZE is not; expected both, or neither for a single process");
  complete(reader);
  return std::move(reader.placement);
}

Placement detect_mpi(const Environment& environment) {
  const Machine machine;
  PlacementReader reader(environment, machine);
  for (const auto present : {detect_openmpi, detect_hydra, detect_pmi}) {
    if (present(reader)) break;
  }
  if (!reader.placement.rank || !reader.placement.world_size) return {};
  complete(reader);
  return std::move(reader.placement);
}

std::string explain(const Placement& placement) {
  std::string text;
  describe(text, placement, "system", std::optional(name_of(placement.system)));
  describe(text, placement, "nnodes", placement.nnodes);
  describe(text, placement, "node_rank", placement.node_rank);
  describe(text, placement, "nproc_per_node", placement.nproc_per_node);
  describe(text, placement, "rank", placement.rank);
  describe(text, placement, "world_size", placement.world_size);
  describe(text, placement, "local_rank", placement.local_rank);
  describe(text, placement, "local_world_size", placement.local_world_size);
  describe(text, placement, "master_addr", placement.master_addr);
  describe(text, placement, "master_port", placement.master_port);
  return text;
}

}  // namespace dtrain
