// This machine's own addresses, as the kernel lists them, and the route to others.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <memory>

#include "cluster/net/endpoint.h"
#include "runtime/base/check.h"

namespace dtrain {
namespace {

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

InterfaceList list_interfaces() {
  ifaddrs* list = nullptr;
  check(Sys{::getifaddrs(&list)}, "getifaddrs");
  return InterfaceList(list, &::freeifaddrs);
}

bool has_address(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr &&
         (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6);
}

SocketAddress address_of(const ifaddrs& entry) {
  return {entry.ifa_addr,
          static_cast<socklen_t>(entry.ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                                       : sizeof(sockaddr_in))};
}

bool is_link_local(const SocketAddress& address) {
  const std::string host = address.host();
  return host.starts_with("169.254.") || host.starts_with("fe80:");
}

// 127.1 and the like are rare, but addresses too.
bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return host.starts_with("127.") || ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

}  // namespace

Route route_to(const SocketAddress& peer) {
  // Connecting a datagram socket sends nothing; it only chooses the route.
  const UniqueFd probe(static_cast<int>(
      check(Sys{::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)}, "socket for route")));
  check(Sys{::connect(probe.get(), peer.get(), peer.length())}, "route to " + peer.text());
  Route route{SocketAddress::of_socket(probe.get()).host(), ""};
  const InterfaceList list = list_interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (has_address(*entry) && entry->ifa_addr->sa_family == peer.family() &&
        address_of(*entry).host() == route.address)
      route.interface = entry->ifa_name;
  }
  // All of 127.0.0.0/8 is the loopback interface's, though only 127.0.0.1 is listed.
  if (route.interface.empty() && peer.is_loopback()) route.interface = "lo";
  return route;
}

std::string address_towards(const std::string& host, const Deadline& deadline) {
  constexpr std::uint16_t kAnyPort = 9;  // routes do not depend on it
  try {
    for (const SocketAddress& address : resolve({host, kAnyPort}, deadline)) {
      try {
        return route_to(address).address;
      } catch (const SystemError&) {
        // IPv6, say, where only IPv4 is set up: another address may have a route.
      }
    }
  } catch (const PeerError&) {
    // Not a name here.
  }
  return "";
}

bool is_loopback_name(const std::string& host, const Deadline& deadline) {
  if (is_numeric(host) || host.ends_with("localhost") || host == "ip6-loopback") return false;
  try {
    return resolve({host, 0}, deadline).front().is_loopback();
  } catch (const PeerError&) {
    return false;
  }
}

void refuse_loopback_name(const std::string& host, std::string_view what, const Deadline& deadline) {
  if (!is_loopback_name(host, deadline)) return;
  const std::string outward = outward_address("");
  throw UsageError(fmt::format(
      "{}: expected an address of node 0 that all nodes can reach, got the name {}, which is {} on this "
      "machine (see /etc/hosts), where no other machine reaches it; give {}the same on every node, or "
      "127.0.0.1 where all nodes are on this machine",
      what, host, resolve({host, 0}, deadline).front().host(),
      outward.empty() ? "an address, " : fmt::format("this machine's {} if it is node 0, ", outward)));
}

std::string outward_address(std::string_view interface) {
  const InterfaceList list = list_interfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      if (!has_address(*entry) || entry->ifa_addr->sa_family != family || (entry->ifa_flags & IFF_UP) == 0)
        continue;
      const SocketAddress address = address_of(*entry);
      const bool wanted = interface.empty() ? !address.is_loopback() : interface == entry->ifa_name;
      if (wanted && !is_link_local(address)) return address.host();
    }
  }
  return "";
}

bool is_own_address(const SocketAddress& address) {
  // The kernel binds own addresses only, whatever their interface says.
  const UniqueFd probe(static_cast<int>(
      check(Sys{::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)}, "socket for bind")));
  SocketAddress any_port = resolve({address.host(), 0}, Deadline::after(std::chrono::seconds(1))).front();
  return ::bind(probe.get(), any_port.get(), any_port.length()) == 0;
}

}  // namespace dtrain
