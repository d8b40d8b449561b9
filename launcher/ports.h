// The master port: a free one, a listening socket on it, and who holds it when it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// A TCP socket that listens on `port()` of the address it was made for.
struct Listener {
  UniqueFd fd;
  std::uint16_t port = 0;
};

/// Binds and listens on `address`:`port` (a name or number, IPv4 or IPv6). Port 0 picks a free one below the
/// range the kernel hands to outgoing connections, so that nobody gets it by accident between our closing and
/// a worker's opening it. The descriptor is close-on-exec. Throws UsageError when the address is not this
/// machine's, or the port is taken: then with the process that holds it, where that can be known.
Listener listen_on(const std::string& address, std::uint16_t port);

/// "pid 123 (name)" of the process listening on `port`, or "" when that cannot be read. Looks through /proc.
std::string owner_of_port(std::uint16_t port);

}  // namespace dtrain::launcher
