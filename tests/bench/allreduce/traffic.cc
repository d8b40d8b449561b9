#include "tests/bench/allreduce/traffic.h"

#include <fstream>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain::bench {

std::uint64_t bytes_sent(const std::string& interface) {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find(interface) == std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int field = 0; field < 9; ++field) fields >> value;  // eight of what was received come first
    return value;
  }
  throw Error("/proc/self/net/dev: expected the interface " + interface);
}

}  // namespace dtrain::bench
