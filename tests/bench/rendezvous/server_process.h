// The rendezvous in a process of its own, so that what it costs can be told from what its clients cost.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "cluster/rendezvous/server.h"

namespace dtrain::bench {

class ServerProcess {
 public:
  /// Forks; to be called while this process has one thread. It listens on every address, so that crowd.cc can
  /// have more connections than one pair of addresses has ports.
  explicit ServerProcess(const rendezvous::ServerOptions& options);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  /// CPU time used so far, and the largest and present resident sizes.
  double cpu_seconds() const;
  double peak_mib() const;
  double resident_mib() const;

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

/// A size of a process, of /proc/PID/status.
double status_mib(pid_t pid, const char* field);

/// Raises the limit on open files as far as allowed (root: to 262,144); returns it.
std::size_t raise_open_files();

}  // namespace dtrain::bench
