// What the kernel's files say about NVIDIA's driver and GPUs. Loads no CUDA library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct NvidiaDriver {
  std::string version;            ///< "580.65.06"; empty: none is loaded
  std::vector<std::string> gpus;  ///< models of the GPUs it drives, in PCI order
  int in_slots = 0;               ///< NVIDIA GPUs in PCI slots, driven or not
  bool reachable = false;         ///< its device files are here; in a container they may not be
};

/// `root` stands before /proc, /sys and /dev. What cannot be read counts as not there.
NvidiaDriver read_nvidia_driver(const std::string& root = "");

/// The version in the text of /proc/driver/nvidia/version; empty for other text. Pure.
std::string parse_driver_version(std::string_view text);

}  // namespace dtrain
