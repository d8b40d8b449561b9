// Sockets for the master port.
#include "launcher/ports.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kBacklog = 1024;
constexpr int kLowestPick = 10000;
constexpr int kPicks = 64;

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), nullptr, &hints, &found);
  if (error != 0)
    throw UsageError("--master-addr: expected an address or host name, got '" + address +
                     "': " + ::gai_strerror(error));
  return AddressList(found, &::freeaddrinfo);
}

void set_port(sockaddr* address, std::uint16_t port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

// Returns 0 and fills `listener`, or the errno of what failed.
int try_listen(const addrinfo& where, std::uint16_t port, Listener& listener) {
  UniqueFd fd(static_cast<int>(
      check(Sys{::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)}, "socket for the master port")));
  const int on = 1;
  // Connections of a group that was just restarted may linger on the port; a listener may not.
  check(Sys{::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)}, "setsockopt SO_REUSEADDR");
  set_port(where.ai_addr, port);
  if (::bind(fd.get(), where.ai_addr, where.ai_addrlen) != 0) return errno;
  if (::listen(fd.get(), kBacklog) != 0) return errno;
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  check(Sys{::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length)}, "getsockname");
  listener.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                    : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  listener.fd = std::move(fd);
  return 0;
}

// Ports from here on are handed to outgoing connections by the kernel.
int first_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 32768;
  file >> low;
  return low;
}

Listener listen_on_free_port(const addrinfo& where, const std::string& address) {
  Listener listener;
  const int span = first_ephemeral_port() - kLowestPick;
  for (int i = 0; span > 1000 && i < kPicks; ++i) {
    std::uint32_t random = 0;
    check(Sys{::getrandom(&random, sizeof random, 0)}, "getrandom");
    const auto port = static_cast<std::uint16_t>(kLowestPick + random % static_cast<std::uint32_t>(span));
    const int error = try_listen(where, port, listener);
    if (error == 0) return listener;
    if (error == EADDRNOTAVAIL) break;
  }
  const int error = try_listen(where, 0, listener);
  if (error == EADDRNOTAVAIL)
    throw UsageError("--master-addr: '" + address + "' is not an address of this machine");
  if (error != 0) throw SystemError("listen on a free port of " + address, error);
  return listener;
}

// Inodes of the sockets listening on `port`.
std::set<std::string> listening_inodes(std::uint16_t port) {
  constexpr const char* kListenState = "0A";
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      const std::size_t colon = local.find(':');
      unsigned found = 0;
      if (state != kListenState || colon == std::string::npos) continue;
      std::from_chars(local.data() + colon + 1, local.data() + local.size(), found, 16);
      if (found == port) inodes.insert("socket:[" + inode + "]");
    }
  }
  return inodes;
}

bool holds_one_of(const fs::path& process, const std::set<std::string>& inodes) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(process / "fd", error)) {
    std::error_code gone;
    if (inodes.contains(fs::read_symlink(entry.path(), gone).string())) return true;
  }
  return false;
}

}  // namespace

std::string owner_of_port(std::uint16_t port) {
  const auto inodes = listening_inodes(port);
  if (inodes.empty()) return "";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds_one_of(entry.path(), inodes))
      continue;
    std::ifstream file(entry.path() / "comm");
    std::string name;
    std::getline(file, name);
    return "pid " + pid + " (" + name + ")";
  }
  return "";
}

Listener listen_on(const std::string& address, std::uint16_t port) {
  const AddressList addresses = resolve(address);
  if (port == 0) return listen_on_free_port(*addresses, address);
  Listener listener;
  const int error = try_listen(*addresses, port, listener);
  if (error == 0) return listener;
  const std::string where = address + ":" + std::to_string(port);
  if (error == EADDRNOTAVAIL)
    throw UsageError("--master-addr: '" + address + "' is not an address of this machine");
  if (error == EADDRINUSE) {
    const std::string owner = owner_of_port(port);
    throw UsageError("--master-port: " + where + " is taken by " +
                     (owner.empty() ? "another process" : owner) +
                     "; end it, name another port, or leave the option out to get a free one");
  }
  throw SystemError("listen on " + where, error);
}

}  // namespace dtrain::launcher
