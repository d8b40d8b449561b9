#include "tests/bench/allreduce/traffic.h"

#include <fstream>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain::bench {

std::uint64_t bytes_sent(const std::string& interface) {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    std::istringstream fields(line);
    fields >> std::ws;
    if (std::string name; !std::getline(fields, name, ':') || name != interface) continue;
    std::uint64_t value = 0;
    for (int field = 0; field < 9; ++field) fields >> value;  // eight of what was received come first
    return value;
  }
  throw Error("/proc/self/net/dev: expected the interface " + interface);
}

}  // namespace dtrain::bench
