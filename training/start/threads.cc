#include "training/start/threads.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "runtime/base/options.h"
#include "runtime/device/cpu/workers/workers.h"

namespace dtrain {
namespace {

std::optional<int> number(const Environment& environment, std::string_view name) {
  const std::string* text = find_variable(environment, name);
  const auto value = text != nullptr ? parse_integer(*text) : std::nullopt;
  return value && *value > 0 && *value < 1 << 20 ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int worker_threads(const Placement& placement, const Environment& environment, int cores) {
  const int neighbours = std::max(placement.local_world_size.value_or(1), 1);
  if (placement.system == JobSystem::slurm) {
    if (const auto given = number(environment, "SLURM_CPUS_PER_TASK"))
      return std::clamp(*given, 1, std::max(cores, 1));
    cores = std::min(cores, number(environment, "SLURM_CPUS_ON_NODE").value_or(cores));
  }
  return std::max(cores / neighbours, 1);
}

void limit_threads(const Placement& placement, const Environment& environment, int wanted, int devices) {
  if (wanted > 0) return cpu::set_worker_count(wanted);
  if (find_variable(environment, "OMP_NUM_THREADS") != nullptr) return;
  if (placement.local_world_size.value_or(1) < 2 && devices < 2) return;
  const int threads = worker_threads(placement, environment, usable_cores());
  cpu::set_worker_count(std::max(threads / std::max(devices, 1), 1));
}

}  // namespace dtrain
