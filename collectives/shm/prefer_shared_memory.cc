#include "collectives/shm/prefer_shared_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "collectives/p2p/algorithms.h"
#include "collectives/p2p/bootstrap_watchdog.h"
#include "collectives/p2p/call.h"
#include "collectives/shm/shm_transport.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// More would take hundreds of MiB for a ring between any two.
constexpr int kMostRanks = 64;

// What ranks tell each other: where they are and, the first of them, how to open its memory. Namespaces stand
// for hosts that are made up of them; a process id means something only within its own.
struct PeerInfo {
  std::array<char, 40> boot_id;
  std::uint64_t network, pids;
  std::int64_t pid;
  std::int32_t fd;  ///< -1: none to open
  std::int32_t padding;

  bool same_machine(const PeerInfo& other) const noexcept {
    return boot_id[0] != 0 && boot_id == other.boot_id && network != 0 && network == other.network &&
           pids != 0 && pids == other.pids;
  }
};

std::uint64_t id_of_namespace(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

PeerInfo own_info(const std::optional<SharedMemory>& memory) {
  PeerInfo info{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(info.boot_id.data(), info.boot_id.size() - 1);
  info.network = id_of_namespace("/proc/self/ns/net");
  info.pids = id_of_namespace("/proc/self/ns/pid");
  info.pid = ::getpid();
  info.fd = memory ? memory->fd() : -1;
  return info;
}

// Where the system refuses, ranks do without.
template <class Open>
std::optional<SharedMemory> attempt(Open open) {
  try {
    return open();
  } catch (const SystemError&) {
    return std::nullopt;
  }
}

}  // namespace

p2p::Endpoints prefer_shared_memory(p2p::Endpoints endpoints, const std::string& group, bool willing,
                                    const Deadline& deadline) {
  p2p::Transport& transport = *endpoints.transport;
  const int rank = transport.rank(), size = transport.size();
  if (size < 2 || size > kMostRanks) return endpoints;
  const ShmLayout layout(size);
  std::optional<SharedMemory> memory;
  if (rank == 0) memory = attempt([&] { return SharedMemory::create(layout.total_bytes()); });

  std::vector<std::byte> scratch;
  p2p::BootstrapWatchdog watchdog(std::string(transport.name()), deadline);
  p2p::Exchange exchange(transport, scratch, watchdog,
                         p2p::group_fingerprint("shared memory of " + group) & ~7ULL);
  const PeerInfo own = willing ? own_info(memory) : PeerInfo{};
  std::vector<PeerInfo> infos(static_cast<std::size_t>(size));
  exchange.all_gather(&own, infos.data(), sizeof own);
  const PeerInfo& first = infos.front();
  if (first.fd < 0 || !std::all_of(infos.begin(), infos.end(),
                                   [&](const PeerInfo& info) { return info.same_machine(first); })) {
    return endpoints;
  }
  if (rank != 0) {
    memory = attempt([&] {
      return SharedMemory::of_process(static_cast<pid_t>(first.pid), first.fd, layout.total_bytes());
    });
  }
  const std::uint8_t opened = memory ? 1 : 0;
  std::vector<std::uint8_t> all_opened(static_cast<std::size_t>(size));
  exchange.all_gather(&opened, all_opened.data(), 1);
  if (std::count(all_opened.begin(), all_opened.end(), 1) != size) return endpoints;
  memory->close_fd();
  endpoints.transport = std::make_unique<ShmTransport>(
      std::move(endpoints.transport), std::make_shared<const SharedMemory>(std::move(*memory)), layout);
  return endpoints;
}

}  // namespace dtrain
