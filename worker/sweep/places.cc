#include "worker/sweep/places.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/detect/gpus.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain::sweep {
namespace {

int as_many_as(std::size_t parts, int workers) { return std::max(1, static_cast<int>(parts) / workers); }

CpuList cores_of(const MachineShare& machine, int place, int places) {
  const int all = static_cast<int>(machine.cores.size());
  if (all == 0 || places == 1) return {};
  const int each = std::max(1, std::min(all, machine.usable) / places);
  CpuList cores;
  for (int i = 0; i < each; ++i)
    cores.push_back(machine.cores[static_cast<std::size_t>((place * each + i) % all)]);
  return cores;
}

}  // namespace

MachineShare read_machine(const Environment& environment) {
  const CpuLayout layout = read_cpu_layout(false);
  MachineShare machine{layout.allowed, usable_cores(layout), {}};
  const auto variable = environment.find("CUDA_VISIBLE_DEVICES");
  const std::string* emulated = find_variable(environment, "DTRAIN_EMULATED_GPUS");
  const int installed =
      emulated == nullptr ? installed_gpus() : static_cast<int>(parse_integer(*emulated).value_or(0));
  machine.gpus =
      visible_gpus(variable == environment.end() ? std::nullopt : std::optional(variable->second), installed);
  return machine;
}

std::vector<Place> make_places(const MachineShare& machine, bool on_gpus, int jobs, int workers) {
  const bool gpus = on_gpus && !machine.gpus.empty();
  const int most = as_many_as(gpus ? machine.gpus.size() : static_cast<std::size_t>(machine.usable), workers);
  const int count = jobs > 0 ? jobs : most;
  if (gpus && static_cast<std::size_t>(count) * static_cast<std::size_t>(workers) > machine.gpus.size())
    throw UsageError(fmt::format(
        "--jobs: expected {} jobs of {} workers at most on {} GPUs, got {}; \"device\": \"cpu\" "
        "among the options trains on the cores",
        machine.gpus.size() / static_cast<std::size_t>(workers), workers, machine.gpus.size(), count));
  std::vector<Place> places(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    Place& place = places[static_cast<std::size_t>(i)];
    place.cores = cores_of(machine, i, count);
    if (!gpus) continue;
    const auto first = machine.gpus.begin() + static_cast<std::ptrdiff_t>(i) * workers;
    place.gpus.assign(first, first + workers);
  }
  return places;
}

}  // namespace dtrain::sweep
