// Which cores each worker is bound to. Pure: the machine's layout comes in, a list of cores for each worker
// comes out.
#pragma once

#include <optional>
#include <vector>

#include "cluster/detect/cpus.h"
#include "launcher/plan/options.h"

namespace dtrain::launcher {

/// Cores of each of `workers` workers; an empty list means "not bound". `gpu_nodes[i]` is the NUMA node of
/// worker i's GPU where there is one. Cores outside `layout.allowed` are never used; a worker whose group
/// has none is not bound. Throws UsageError where there are fewer cores than workers that want their own.
std::vector<CpuList> bind_workers(Binding binding, int workers, const CpuLayout& layout,
                                  const std::vector<std::optional<int>>& gpu_nodes);

}  // namespace dtrain::launcher
