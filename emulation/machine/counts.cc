#include "emulation/machine/counts.h"

#include <unistd.h>

#include <fstream>

namespace emulation {

std::map<std::string, std::uint64_t> values(const Counts& counts) {
  return {{"launches", counts.launches},       {"graph_launches", counts.graph_launches},
          {"graph_nodes", counts.graph_nodes}, {"host_waits", counts.host_waits},
          {"allocations", counts.allocations}, {"pinned_allocations", counts.pinned_allocations},
          {"copies", counts.copies},           {"copied_bytes", counts.copied_bytes},
          {"collectives", counts.collectives}};
}

void write(const Counts& counts, std::string file) {
  if (const std::size_t at = file.find("%p"); at != std::string::npos)
    file.replace(at, 2, std::to_string(::getpid()));
  std::ofstream out(file);
  const char* separator = "{";
  for (const auto& [name, count] : values(counts)) {
    out << separator << '"' << name << "\": " << count;
    separator = ", ";
  }
  out << "}\n";
}

}  // namespace emulation
