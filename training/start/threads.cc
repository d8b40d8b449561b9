#include "training/start/threads.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "runtime/base/options.h"

// OpenMP's, where a library brought its runtime along; the program itself is not built with OpenMP.
extern "C" __attribute__((weak)) void omp_set_num_threads(int threads);

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
  if (wanted > 0 && omp_set_num_threads != nullptr) return omp_set_num_threads(wanted);
  if (find_variable(environment, "OMP_NUM_THREADS") != nullptr || omp_set_num_threads == nullptr) return;
  if (placement.local_world_size.value_or(1) < 2 && devices < 2) return;
  const int threads = worker_threads(placement, environment, usable_cores());
  omp_set_num_threads(std::max(threads / std::max(devices, 1), 1));
}

}  // namespace dtrain
