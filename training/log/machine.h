// The machine that rank 0 runs on, as config.json tells it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain {

struct MachineInfo {
  std::string host;
  std::string system;     ///< "Linux 6.1.0"
  std::string processor;  ///< as its maker calls it; empty: not known
  std::int64_t cores = 0;
  std::int64_t memory_bytes = 0;
};

/// What can be told is; the rest stays empty. Reads the beginning of /proc/cpuinfo.
MachineInfo machine_info();

/// The first processor's name in the text of /proc/cpuinfo; empty when it has none. Pure.
std::string processor_name(std::string_view cpuinfo);

}  // namespace dtrain
