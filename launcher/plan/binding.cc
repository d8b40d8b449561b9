// Deals cores out to workers.
#include "launcher/plan/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

CpuList common(const CpuList& a, const CpuList& b) {
  CpuList both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

CpuList share(const CpuList& cpus, int part, int parts) {
  const auto size = static_cast<long>(cpus.size());
  return CpuList(cpus.begin() + size * part / parts, cpus.begin() + size * (part + 1) / parts);
}

}  // namespace

std::vector<CpuList> bind_workers(Binding binding, int workers, const CpuLayout& layout,
                                  const std::vector<std::optional<int>>& gpu_nodes) {
  std::vector<CpuList> bound(static_cast<std::size_t>(workers));
  if (binding == Binding::none) return bound;
  if (binding == Binding::exclusive && static_cast<std::size_t>(workers) > layout.allowed.size())
    throw UsageError(
        fmt::format("--numa-binding exclusive: expected at most as many workers as cores, {}, got {}; start "
                    "fewer workers (--nproc-per-node), or choose another binding",
                    layout.allowed.size(), workers));
  const auto& groups = binding == Binding::socket ? layout.sockets : layout.nodes;
  for (int i = 0; i < workers; ++i) {
    CpuList& mine = bound[static_cast<std::size_t>(i)];
    if (binding == Binding::exclusive) {
      mine = share(layout.allowed, i, workers);
      continue;
    }
    if (groups.empty()) continue;
    // Workers with neighbouring ranks talk most: fill one group before the next.
    std::size_t group = static_cast<std::size_t>(i) * groups.size() / static_cast<std::size_t>(workers);
    const auto gpu_node = static_cast<std::size_t>(i) < gpu_nodes.size()
                              ? gpu_nodes[static_cast<std::size_t>(i)]
                              : std::nullopt;
    if (binding == Binding::node && gpu_node && static_cast<std::size_t>(*gpu_node) < groups.size())
      group = static_cast<std::size_t>(*gpu_node);
    mine = common(groups[group], layout.allowed);
  }
  return bound;
}

}  // namespace dtrain::launcher
