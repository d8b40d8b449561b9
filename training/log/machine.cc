#include "training/log/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace dtrain {

std::string processor_name(std::string_view cpuinfo) {
  const std::size_t line = cpuinfo.find("model name");
  if (line == std::string_view::npos) return {};
  const std::size_t end = cpuinfo.find('\n', line), colon = cpuinfo.find(": ", line);
  if (colon == std::string_view::npos || colon > end) return {};
  return std::string(cpuinfo.substr(colon + 2, end == std::string_view::npos ? end : end - colon - 2));
}

MachineInfo machine_info() {
  MachineInfo machine;
  utsname system{};
  if (::uname(&system) == 0) {
    machine.host = system.nodename;
    machine.system = fmt::format("{} {}", system.sysname, system.release);
  }
  std::string beginning(4096, '\0');
  std::ifstream cpuinfo("/proc/cpuinfo");
  cpuinfo.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  machine.processor =
      processor_name(std::string_view(beginning).substr(0, static_cast<std::size_t>(cpuinfo.gcount())));
  machine.cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) machine.memory_bytes = pages * page_bytes;
  return machine;
}

}  // namespace dtrain
