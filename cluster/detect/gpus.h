// How many GPUs this process may use, told from files and CUDA_VISIBLE_DEVICES: no CUDA library is loaded, so
// the launcher starts in milliseconds and runs where there is no driver.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

/// Number of NVIDIA GPUs in this machine, from /proc/driver/nvidia/gpus or the /dev/nvidia<N> nodes below
/// `root` ("" for the real ones; tests give a folder). 0 when there is no driver.
int installed_gpus(const std::string& root = "");

/// The devices that a CUDA program would see, as CUDA_VISIBLE_DEVICES names them (indices or UUIDs), in
/// order. `variable` is CUDA_VISIBLE_DEVICES, empty when unset: then all installed ones, "0", "1", …. The
/// list ends at the first entry that names no device, as CUDA has it. A list is believed where `installed` is
/// 0 (the driver's files are not visible in every container). Pure.
std::vector<std::string> visible_gpus(const std::optional<std::string>& variable, int installed);

/// Number of Intel GPUs in this machine: render nodes of that vendor below `root`. 0 when there is no driver.
int installed_xpus(const std::string& root = "");

/// How many Intel GPUs a program would see. `mask` is ZE_AFFINITY_MASK ("0,1", "0.0,0.1"), empty when unset:
/// then all `installed`. Pure.
int visible_xpus(const std::optional<std::string>& mask, int installed);

/// The NUMA node of installed GPU `index` in PCI order; empty when it cannot be told.
std::optional<int> numa_node_of_gpu(int index, const std::string& root = "");

}  // namespace dtrain
