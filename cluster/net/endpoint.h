// TCP addresses: parsing, resolving, listening, and which interface leads there. A port is never probed and
// bound later: a caller that needs a free port gets the bound, listening socket together with its number.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain {

/// A host name or address literal and a port, as a user writes them. `host` never carries brackets.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  /// "host:port", or "[v6]:port" when the host holds a colon.
  std::string text() const;
  bool operator==(const Endpoint&) const = default;
};

/// Parses `host:port`, `[v6]:port`, and, when `default_port` is given, `host`, `v6` and `[v6]` alone. Throws
/// UsageError naming `what` (the option or variable the text came from) on an empty host, a missing or
/// impossible port, or a bracket left open.
Endpoint parse_endpoint(std::string_view text, std::string_view what,
                        std::optional<std::uint16_t> default_port = {});

/// Parses a port, 0..65535, decimal digits only. Throws UsageError naming `what`.
std::uint16_t parse_port(std::string_view text, std::string_view what);

/// A resolved IPv4 or IPv6 address with its port. A value.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  /// Addresses a socket has or talks to. Throws SystemError, or UsageError when the socket is not IPv4 or
  /// IPv6.
  static SocketAddress of_socket(int fd);
  static SocketAddress of_peer(int fd);

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const noexcept { return length_; }
  int family() const noexcept { return storage_.ss_family; }
  std::uint16_t port() const noexcept;
  /// The address alone, in numbers.
  std::string host() const;
  /// "127.0.0.1:29500", "[::1]:29500"
  std::string text() const;
  /// 127.0.0.0/8, ::1, or the former mapped into IPv6.
  bool is_loopback() const noexcept;
  /// 0.0.0.0 or ::, which stand for every interface.
  bool is_any() const noexcept;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// Whether `text` is what Kubernetes puts into `SERVICE_PORT` for each service of a namespace, such as
/// "tcp://10.0.0.7:80": of a service called "master" that variable is MASTER_PORT, and no port of a job's.
bool is_service_link(std::string_view text) noexcept;

/// Every address of `endpoint`, in the order in which they should be tried. Literals never leave the process;
/// names are looked up by a helper thread, which is abandoned (it ends by itself) when `deadline` passes; a
/// name server that answers "try again" is asked again until then. Throws PeerError naming the host.
std::vector<SocketAddress> resolve(const Endpoint& endpoint, const Deadline& deadline);

/// As resolve(), for a host that may come up after this one: a name that has no address yet, as a container's
/// has not before it runs, is looked up again until `deadline`.
std::vector<SocketAddress> resolve_when_known(const Endpoint& endpoint, const Deadline& deadline);

/// A bound and listening TCP socket (close-on-exec, non-blocking) and where it listens.
struct Listener {
  UniqueFd fd;
  SocketAddress address;

  std::uint16_t port() const noexcept { return address.port(); }
};

/// Listens on exactly `host` (never on other interfaces) and `port`; port 0 lets the kernel pick a free one.
/// Throws SystemError naming the address and, when the port is taken, the process that holds it where that
/// can be seen; UsageError when `host` is no address of this machine; PeerError when it cannot be resolved.
Listener listen_on(const std::string& host, std::uint16_t port, const Deadline& deadline);

/// As listen_on with port 0, but for a socket that will be closed and opened again by another program: picks
/// a port below the range that the kernel hands to outgoing connections, so that no program gets it by
/// accident in between.
Listener listen_on_lasting_port(const std::string& host, const Deadline& deadline);

/// Takes over a socket that is already bound and listening (inherited from a launcher); makes it
/// close-on-exec and non-blocking. Throws UsageError naming `what` when it is not a listening IPv4 or IPv6
/// TCP socket.
Listener adopt_listener(UniqueFd fd, std::string_view what);

/// Settings of every stream of ours: small messages leave at once, and a peer that cannot be reached (cut
/// off, powered down) is noticed within about 15 seconds even when nothing is being sent. Throws SystemError.
void tune_stream(int fd);

/// The way to a peer: the local address the kernel would send from, and that address's interface ("eth0").
struct Route {
  std::string address;
  std::string interface;
};

/// Asks the kernel's routing table; sends nothing. Throws SystemError when there is no route.
Route route_to(const SocketAddress& peer);

/// This machine's address on the way to `host`, a name or an address; empty when `host` is no name here or
/// there is no way to it. Waits for a name server until `deadline`.
std::string address_towards(const std::string& host, const Deadline& deadline);

/// Whether `host` is a name, not "localhost", that this machine takes for its own loopback, as Debian's
/// /etc/hosts does with a machine's own name: others could wait for it in vain. False for one that does not
/// resolve.
bool is_loopback_name(const std::string& host, const Deadline& deadline);

/// Refuses a job of several nodes whose first one is called `host` where is_loopback_name(). `what` says
/// where the name came from. Throws UsageError with the address to give instead.
void refuse_loopback_name(const std::string& host, std::string_view what, const Deadline& deadline);

/// The first address that other machines may reach this one at: of the interface so named, or of any that is
/// up and not loopback when `interface` is empty; IPv4 before IPv6, never link-local. Empty when there is
/// none.
std::string outward_address(std::string_view interface);

/// Whether `address` belongs to this machine.
bool is_own_address(const SocketAddress& address);

/// Who listens on `address`, as "pid 4711 (python3)"; empty when it cannot be told (another user's process,
/// another network namespace). Reads /proc; meant for error messages.
std::string port_owner(const SocketAddress& address);

}  // namespace dtrain
