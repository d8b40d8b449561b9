// Which cores this process may use, told by the scheduler, /sys and its control group.
#pragma once

#include <string>
#include <vector>

namespace dtrain {

using CpuList = std::vector<int>;  ///< core numbers, ascending

/// Which cores there are, and how they lie.
struct CpuLayout {
  CpuList allowed;               ///< cores this process may run on
  std::vector<CpuList> nodes;    ///< cores of each NUMA node
  std::vector<CpuList> sockets;  ///< cores of each socket
  int quota = 0;                 ///< cores' worth of time the control group grants; 0: no limit
};

/// Parses the kernel's list format, "0-3,8". Text that is not one gives what was understood so far.
CpuList parse_cpu_list(const std::string& text);

/// "0-3,8" for the cores 0, 1, 2, 3 and 8.
std::string cpu_list_text(const CpuList& cpus);

/// Reads the layout from /sys, /proc and the scheduler; NUMA nodes and sockets only `with_groups` (a file for
/// each core). Never throws: what cannot be read is left empty.
CpuLayout read_cpu_layout(bool with_groups);

/// Cores this process can really use: allowed ones, fewer if the control group's quota is smaller; at
/// least 1.
int usable_cores(const CpuLayout& layout);

}  // namespace dtrain
