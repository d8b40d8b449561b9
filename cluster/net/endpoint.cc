// Parsing, resolving and listening. Name lookups run on a helper thread because getaddrinfo has no deadline.
#include "cluster/net/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "cluster/net/token.h"
#include "runtime/base/check.h"

namespace dtrain {
namespace {

constexpr int kBacklog = 4096;
// Between lookups: soon at first, but no burden to a name server that a thousand nodes ask.
constexpr std::chrono::milliseconds kFirstPause{100}, kLongestPause{1000};

[[noreturn]] void refuse_endpoint(std::string_view what, std::string_view text, std::string_view why) {
  throw UsageError(fmt::format("{}: expected host:port or [v6]:port, got '{}': {}", what, text, why));
}

struct AddressList {
  addrinfo* head = nullptr;
  AddressList() = default;
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  ~AddressList() {
    if (head != nullptr) ::freeaddrinfo(head);
  }
};

// One getaddrinfo call; 0 or an EAI code.
int look_up(const Endpoint& endpoint, int flags, std::vector<SocketAddress>& found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  AddressList list;
  const int code =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list.head);
  for (const addrinfo* entry = list.head; code == 0 && entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6)
      found.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return code;
}

// What the lookup thread and its caller share; outlives whichever of the two goes first.
struct Lookup {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  int code = 0;
  std::vector<SocketAddress> found;
};

// What another attempt may not meet: a name server, or this machine, that has no answer, descriptors, memory
// or threads to spare.
bool is_passing(int code) { return code == EAI_AGAIN || code == EAI_MEMORY || code == EAI_SYSTEM; }

// Runs one lookup on its own thread; nullopt when the deadline passed first.
std::optional<int> look_up_until(const Endpoint& endpoint, const Deadline& deadline,
                                 std::vector<SocketAddress>& found) {
  auto shared = std::make_shared<Lookup>();
  const auto work = [shared, endpoint] {
    std::vector<SocketAddress> result;
    const int code = look_up(endpoint, 0, result);
    const std::lock_guard lock(shared->mutex);
    shared->code = code;
    shared->found = std::move(result);
    shared->done = true;
    shared->finished.notify_one();
  };
  try {
    std::thread(work).detach();
  } catch (const std::system_error&) {
    return EAI_AGAIN;
  }
  std::unique_lock lock(shared->mutex);
  const auto done = [&] { return shared->done; };
  if (deadline.is_never()) {
    shared->finished.wait(lock, done);
  } else if (!shared->finished.wait_until(lock, *deadline.at(), done)) {
    return std::nullopt;
  }
  found = std::move(shared->found);
  return shared->code;
}

// Until there is an address, the deadline has passed, or a lookup fails with a code that `may_pass` refuses.
std::vector<SocketAddress> look_up_again(const Endpoint& endpoint, const Deadline& deadline,
                                         bool (*may_pass)(int code)) {
  std::vector<SocketAddress> found;
  if (look_up(endpoint, AI_NUMERICHOST, found) == 0 && !found.empty()) return found;
  int times = 0;
  const auto lost = [&](std::string_view why) {
    const std::string asked = times > 1 ? fmt::format(", asked {} times", times) : "";
    return PeerError(
        fmt::format("resolve {}: {}{}; check the name, or give an address", endpoint.host, why, asked),
        {.host = endpoint.host, .operation = "resolve", .tensor = {}});
  };
  for (Duration pause = kFirstPause;; pause = std::min<Duration>(2 * pause, kLongestPause)) {
    found.clear();
    ++times;
    const std::optional<int> code = look_up_until(endpoint, deadline, found);
    if (!code) throw lost("no answer before the deadline");
    if (*code == 0 && !found.empty()) return found;
    if (!may_pass(*code) || deadline.expired())
      throw lost(*code == 0 ? "no IPv4 or IPv6 address" : ::gai_strerror(*code));
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
  }
}

UniqueFd bind_and_listen(const SocketAddress& address) {
  UniqueFd fd(
      static_cast<int>(check(Sys{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)},
                             "socket for listening")));
  const int on = 1;
  // A port whose last owner's connections linger in TIME_WAIT may be taken at once.
  check(Sys{::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)}, "setsockopt SO_REUSEADDR");
  if (address.family() == AF_INET6)
    check(Sys{::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)}, "setsockopt IPV6_V6ONLY");
  check(Sys{::bind(fd.get(), address.get(), address.length())}, "bind");
  check(Sys{::listen(fd.get(), kBacklog)}, "listen");
  return fd;
}

[[noreturn]] void refuse_listening(const SocketAddress& address, const SystemError& error) {
  const int code = error.error_number();
  if (code == EADDRINUSE) {
    const std::string owner = port_owner(address);
    throw SystemError(
        fmt::format("listen on {}: the port is taken{}; choose another port, or 0 for a free one",
                    address.text(), owner.empty() ? "" : " by " + owner),
        code);
  }
  if (code == EADDRNOTAVAIL)
    throw UsageError(fmt::format(
        "listen on {}: expected an address of this machine, got another; see `ip address`", address.text()));
  throw SystemError(fmt::format("listen on {}", address.text()), code);
}

// Ports from here on are handed to outgoing connections by the kernel.
int first_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 32768;
  file >> low;
  return low;
}

SocketAddress ask(int fd, int (*call)(int, sockaddr*, socklen_t*), const char* what) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  check(Sys{call(fd, reinterpret_cast<sockaddr*>(&storage), &length)}, what);
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

}  // namespace

std::string Endpoint::text() const {
  const char* form = host.find(':') == std::string::npos ? "{}:{}" : "[{}]:{}";
  return fmt::format(fmt::runtime(form), host, port);
}

std::uint16_t parse_port(std::string_view text, std::string_view what) {
  std::uint16_t port = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size())
    throw UsageError(fmt::format("{}: expected a port from 0 to 65535, got '{}'", what, text));
  return port;
}

Endpoint parse_endpoint(std::string_view text, std::string_view what,
                        std::optional<std::uint16_t> default_port) {
  std::string_view host = text;
  std::optional<std::string_view> port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) refuse_endpoint(what, text, "'[' is not closed");
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') refuse_endpoint(what, text, "text after ']'");
    if (!rest.empty()) port = rest.substr(1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (text.find(':', colon + 1) == std::string_view::npos) {
      host = text.substr(0, colon);
      port = text.substr(colon + 1);
    } else if (!default_port) {
      refuse_endpoint(what, text, "an IPv6 address with a port needs brackets");
    }
  }
  if (host.empty()) refuse_endpoint(what, text, "the host is empty");
  if (host.find_first_of(std::string_view(" \t\r\n\0/", 6)) != std::string_view::npos)
    refuse_endpoint(what, text, "the host holds a character no host name has");
  if (!port && !default_port) refuse_endpoint(what, text, "the port is missing");
  return {std::string(host), port ? parse_port(*port, what) : *default_port};
}

bool is_service_link(std::string_view text) noexcept {
  return text.starts_with("tcp://") || text.starts_with("udp://") || text.starts_with("sctp://");
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) {
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
    throw UsageError(fmt::format("socket address: expected IPv4 or IPv6, got family {}", address->sa_family));
  length_ = std::min<socklen_t>(length, sizeof storage_);
  std::memcpy(&storage_, address, length_);
}

SocketAddress SocketAddress::of_socket(int fd) { return ask(fd, ::getsockname, "getsockname"); }
SocketAddress SocketAddress::of_peer(int fd) { return ask(fd, ::getpeername, "getpeername"); }

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port
                                    : reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  const void* address =
      family() == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr);
  ::inet_ntop(family(), address, text, sizeof text);
  return text;
}

std::string SocketAddress::text() const { return Endpoint{host(), port()}.text(); }

bool SocketAddress::is_loopback() const noexcept {
  if (family() == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == 127;
  if (family() != AF_INET6) return false;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

bool SocketAddress::is_any() const noexcept {
  if (family() == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == INADDR_ANY;
  return family() == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

std::vector<SocketAddress> resolve(const Endpoint& endpoint, const Deadline& deadline) {
  return look_up_again(endpoint, deadline, is_passing);
}

std::vector<SocketAddress> resolve_when_known(const Endpoint& endpoint, const Deadline& deadline) {
  return look_up_again(endpoint, deadline, [](int) { return true; });
}

Listener listen_on(const std::string& host, std::uint16_t port, const Deadline& deadline) {
  const SocketAddress address = resolve({host, port}, deadline).front();
  try {
    UniqueFd fd = bind_and_listen(address);
    const SocketAddress bound = SocketAddress::of_socket(fd.get());
    return {std::move(fd), bound};
  } catch (const SystemError& error) {
    refuse_listening(address, error);
  }
}

Listener listen_on_lasting_port(const std::string& host, const Deadline& deadline) {
  constexpr int kLowest = 10000, kFewest = 1000, kPicks = 64;
  const std::string address = resolve({host, 0}, deadline).front().host();
  const int span = first_ephemeral_port() - kLowest;
  for (int i = 0; span >= kFewest && i < kPicks; ++i) {
    std::uint32_t random = 0;
    fill_random(&random, sizeof random);
    const auto port = static_cast<std::uint16_t>(kLowest + random % static_cast<std::uint32_t>(span));
    const SocketAddress candidate = resolve({address, port}, deadline).front();
    try {
      return {bind_and_listen(candidate), candidate};
    } catch (const SystemError& error) {
      if (error.error_number() != EADDRINUSE) refuse_listening(candidate, error);
    }
  }
  return listen_on(host, 0, deadline);
}

Listener adopt_listener(UniqueFd fd, std::string_view what) {
  int listening = 0;
  socklen_t length = sizeof listening;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0)
    throw UsageError(fmt::format("{}: expected a listening TCP socket, got descriptor {}, which is not one",
                                 what, fd.get()));
  const SocketAddress address = SocketAddress::of_socket(fd.get());
  const int flags = static_cast<int>(check(Sys{::fcntl(fd.get(), F_GETFL)}, "fcntl F_GETFL"));
  check(Sys{::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK)}, "fcntl O_NONBLOCK");
  check(Sys{::fcntl(fd.get(), F_SETFD, FD_CLOEXEC)}, "fcntl FD_CLOEXEC");
  return {std::move(fd), address};
}

void tune_stream(int fd) {
  const auto set = [fd](int level, int option, int value, const char* what) {
    check(Sys{::setsockopt(fd, level, option, &value, sizeof value)}, what);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1, "setsockopt TCP_NODELAY");
  // Longer than a node's lease lasts unless asked for: who decides that a machine is lost is the rendezvous.
  set(SOL_SOCKET, SO_KEEPALIVE, 1, "setsockopt SO_KEEPALIVE");
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5, "setsockopt TCP_KEEPIDLE");
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2, "setsockopt TCP_KEEPINTVL");
  set(IPPROTO_TCP, TCP_KEEPCNT, 5, "setsockopt TCP_KEEPCNT");
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 15000, "setsockopt TCP_USER_TIMEOUT");
}

}  // namespace dtrain
