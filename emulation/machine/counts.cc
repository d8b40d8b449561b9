#include "emulation/machine/counts.h"

#include <unistd.h>

#include <fstream>

namespace emulation {

void write(const Counts& counts, std::string file) {
  if (const std::size_t at = file.find("%p"); at != std::string::npos)
    file.replace(at, 2, std::to_string(::getpid()));
  std::ofstream out(file);
  const char* separator = "{";
  const auto add = [&](const char* name, const std::atomic<std::uint64_t>& count) {
    out << separator << '"' << name << "\": " << count.load();
    separator = ", ";
  };
  add("launches", counts.launches);
  add("graph_launches", counts.graph_launches);
  add("graph_nodes", counts.graph_nodes);
  add("host_waits", counts.host_waits);
  add("allocations", counts.allocations);
  add("pinned_allocations", counts.pinned_allocations);
  add("copies", counts.copies);
  add("copied_bytes", counts.copied_bytes);
  add("collectives", counts.collectives);
  out << "}\n";
}

}  // namespace emulation
