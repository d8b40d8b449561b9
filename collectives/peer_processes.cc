#include "collectives/peer_processes.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dtrain {

ProcessName ProcessName::own() noexcept {
  struct stat status {};
  const bool known = ::stat("/proc/self/ns/pid", &status) == 0;
  return {::getpid(), known ? static_cast<std::uint64_t>(status.st_ino) : 0};
}

PeerProcesses::PeerProcesses(const std::vector<ProcessName>& names) : processes_(names.size()) {
  const ProcessName own = ProcessName::own();
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const auto& [pid, pid_namespace] = names[rank];
    if (pid == 0 || pid == own.pid || pid_namespace != own.pid_namespace) continue;
    processes_[rank].reset(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  }
}

std::vector<int> PeerProcesses::ended() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    pollfd process{processes_[rank].get(), POLLIN, 0};
    if (processes_[rank] && ::poll(&process, 1, 0) == 1) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace dtrain
