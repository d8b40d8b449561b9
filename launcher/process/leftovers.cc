#include "launcher/process/leftovers.h"

#include <fmt/format.h>

#include "launcher/system/processes.h"

namespace dtrain::launcher {

std::string in_seconds(Duration time) {
  return fmt::format("{:.4g}", std::chrono::duration<double>(time).count());
}

void Leftovers::note(pid_t pid, const std::string& worker) {
  const auto process = find_process(pid);
  if (process) names_.push_back(fmt::format("{} (pid {}, of {})", process->name, pid, worker));
}

std::string Leftovers::text(int count, Duration time) const {
  std::string names;
  for (const std::string& name : names_) names += (names.empty() ? ": " : ", ") + name;
  const bool one = count == 1;
  return fmt::format(
      "all workers have ended, but {} process{} that they left in the background {} not: up to {} s more "
      "(--shutdown-timeout){}",
      count, one ? "" : "es", one ? "has" : "have", in_seconds(time), names);
}

}  // namespace dtrain::launcher
