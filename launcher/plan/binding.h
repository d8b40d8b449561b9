// Which cores each worker is bound to. Pure: the machine's layout comes in, a list of cores for each worker
// comes out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/options.h"

namespace dtrain::launcher {

using CpuList = std::vector<int>;  ///< core numbers, ascending

/// The part of a machine's layout that binding needs.
struct CpuLayout {
  CpuList allowed;               ///< cores this process may run on
  std::vector<CpuList> nodes;    ///< cores of each NUMA node
  std::vector<CpuList> sockets;  ///< cores of each socket
  int quota = 0;                 ///< cores' worth of time the control group grants; 0: no limit
};

/// Parses the kernel's list format, "0-3,8". Text that is not one gives what was understood so far.
CpuList parse_cpu_list(const std::string& text);

/// Reads the layout from /sys, /proc and the scheduler; NUMA nodes and sockets only `with_groups` (a file for
/// each core). Never throws: what cannot be read is left empty.
CpuLayout read_cpu_layout(bool with_groups);

/// Cores this process can really use: allowed ones, fewer if the control group's quota is smaller; at
/// least 1.
int usable_cores(const CpuLayout& layout);

/// Cores of each of `workers` workers; an empty list means "not bound". `gpu_nodes[i]` is the NUMA node of
/// worker i's GPU where there is one. Cores outside `layout.allowed` are never used; a worker whose share
/// would be empty is not bound.
std::vector<CpuList> bind_workers(Binding binding, int workers, const CpuLayout& layout,
                                  const std::vector<std::optional<int>>& gpu_nodes);

}  // namespace dtrain::launcher
