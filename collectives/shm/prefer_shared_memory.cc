#include "collectives/shm/prefer_shared_memory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <vector>

#include "collectives/p2p/algorithm/measure_costs.h"
#include "collectives/p2p/algorithms.h"
#include "collectives/p2p/bootstrap_watchdog.h"
#include "collectives/p2p/call.h"
#include "collectives/shm/shm_transport.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Ranks that share one memory, with a ring between any two of them: 300 MiB when all are in use. A machine
// with more ranks has several such memories.
constexpr std::size_t kMostSharing = 256;

// What ranks tell each other about where they are and what they want.
struct PeerInfo {
  std::uint64_t host;     ///< identity of its host
  std::uint64_t machine;  ///< what it has in common with whom it can share memory
  std::int64_t pid;
  std::int32_t willing;
  std::int32_t all_reduce;
};

// Where the memory that a rank has made can be opened by the others.
struct MemoryInfo {
  std::int32_t fd;  ///< -1: none
};

std::uint64_t id_of_namespace(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

// Namespaces stand for hosts that are made up of them; a process id means something only within its own.
// Where they cannot be told, a rank is alone.
std::string own_machine(int rank) {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  const std::uint64_t network = id_of_namespace("/proc/self/ns/net"),
                      pids = id_of_namespace("/proc/self/ns/pid");
  if (boot_id.empty() || network == 0 || pids == 0) return fmt::format("rank {}", rank);
  return fmt::format("{} {} {}", boot_id, network, pids);
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

/// The set-up of one group, as one rank goes through it.
class SetUp {
 public:
  SetUp(p2p::Endpoints endpoints, const std::string& group, const Locality& locality,
        const Deadline& deadline)
      : endpoints_(std::move(endpoints)),
        group_(group),
        locality_(locality),
        rank_(endpoints_.transport->rank()),
        size_(endpoints_.transport->size()),
        watchdog_(std::string(endpoints_.transport->name()), deadline) {}

  p2p::Endpoints run() {
    try {
      return plan();
    } catch (const p2p::LinkLost& lost) {
      PeerFailure failure;
      failure.rank = lost.rank();
      if (lost.rank() >= 0) failure.host = endpoints_.transport->host_of(lost.rank());
      failure.operation = "connect";
      throw PeerError(fmt::format("group '{}': rank {} on {} was lost while the group was set up: {}", group_,
                                  failure.rank, failure.host, lost.what()),
                      std::move(failure));
    }
  }

 private:
  p2p::Endpoints plan() {
    meet();
    share_memory();
    p2p::GroupCosts costs;
    if (topology_->hosts() > 1 && locality_.all_reduce == AllReduceAlgorithm::automatic)
      costs = p2p::measure_costs(context("costs of "), *topology_);
    const auto segments =
        tell_each_other(static_cast<std::uint64_t>(endpoints_.transport->segment_bytes()), "segments of ");
    endpoints_.plan = std::make_shared<const p2p::CollectivePlan>(*topology_, locality_.all_reduce, costs,
                                                                  *std::ranges::min_element(segments));
    return std::move(endpoints_);
  }

  p2p::AlgorithmContext context(const char* what) {
    return {*endpoints_.transport, scratch_, watchdog_, p2p::group_fingerprint(what + group_) & ~7ULL};
  }

  template <class T>
  std::vector<T> tell_each_other(const T& mine, const char* what) {
    std::vector<T> all(static_cast<std::size_t>(size_));
    p2p::Exchange(context(what)).all_gather(&mine, all.data(), sizeof mine);
    return all;
  }

  void meet() {
    const std::string& identity = locality_.host_identity;
    PeerInfo own{};
    own.machine = p2p::group_fingerprint(own_machine(rank_));
    own.host = identity.empty() ? own.machine : p2p::group_fingerprint(identity);
    own.pid = ::getpid();
    own.willing = locality_.share_memory ? 1 : 0;
    own.all_reduce = static_cast<std::int32_t>(locality_.all_reduce);
    infos_ = tell_each_other(own, "hosts of ");
    std::vector<std::uint64_t> hosts;
    for (const PeerInfo& info : infos_) hosts.push_back(info.host);
    check_all_reduce();
    topology_.emplace(hosts);
  }

  // A rank leaves only when all know why it does: its going would be the others' error otherwise.
  void check_all_reduce() {
    const auto asked = [&](int rank) { return static_cast<AllReduceAlgorithm>(info_of(rank).all_reduce); };
    for (int rank = 1; rank < size_; ++rank) {
      if (asked(rank) == asked(0)) continue;
      try {
        p2p::Exchange(context("all_reduce of ")).barrier();
      } catch (const p2p::LinkLost&) {
        // The one that has gone knew, and so does this rank.
      }
      throw UsageError(fmt::format(
          "all_reduce algorithm: expected the same on every rank, got {} on rank 0 and {} on rank {}",
          name_of(asked(0)), name_of(asked(rank)), rank));
    }
  }

  // Those of this rank's host and machine that one memory is for, in order; this rank among them.
  std::vector<int> sharing() const {
    std::vector<int> here = topology_->members(topology_->host_of(rank_));
    std::erase_if(here, [&](int rank) { return info_of(rank).machine != info_of(rank_).machine; });
    const auto index = static_cast<std::size_t>(std::ranges::lower_bound(here, rank_) - here.begin());
    const std::size_t first = index / kMostSharing * kMostSharing;
    return {here.begin() + static_cast<std::ptrdiff_t>(first),
            here.begin() + static_cast<std::ptrdiff_t>(std::min(here.size(), first + kMostSharing))};
  }

  // Three steps: the first rank of each memory makes it, the others open it, and it is used if all have it.
  void share_memory() {
    const std::vector<int> members = sharing();
    const bool whole = static_cast<int>(members.size()) == size_;
    const bool wanted = members.size() > 1 && (whole || endpoints_.transport->polled() != nullptr) &&
                        std::ranges::all_of(members, [&](int rank) { return info_of(rank).willing != 0; });
    const ShmLayout layout(static_cast<int>(members.size()));
    std::optional<SharedMemory> memory;
    if (wanted && rank_ == members.front())
      memory = attempt([&] { return SharedMemory::create(layout.total_bytes()); });
    const std::vector<MemoryInfo> memories =
        tell_each_other(MemoryInfo{memory ? memory->fd() : -1}, "memory of ");
    const MemoryInfo& offered = memories[static_cast<std::size_t>(members.front())];
    if (wanted && rank_ != members.front() && offered.fd >= 0) {
      memory = attempt([&] {
        return SharedMemory::of_process(static_cast<pid_t>(info_of(members.front()).pid), offered.fd,
                                        layout.total_bytes());
      });
    }
    const auto opened = tell_each_other(static_cast<std::uint8_t>(memory ? 1 : 0), "opened memory of ");
    if (!std::ranges::all_of(members, [&](int rank) { return opened[static_cast<std::size_t>(rank)] == 1; }))
      return;
    memory->close_fd();
    endpoints_.transport = std::make_unique<ShmTransport>(
        std::move(endpoints_.transport), std::make_shared<const SharedMemory>(std::move(*memory)), layout,
        members);
  }

  const PeerInfo& info_of(int rank) const { return infos_[static_cast<std::size_t>(rank)]; }

  p2p::Endpoints endpoints_;
  const std::string& group_;
  const Locality& locality_;
  const int rank_, size_;
  p2p::BootstrapWatchdog watchdog_;
  std::vector<std::byte> scratch_;
  std::vector<PeerInfo> infos_;  // by rank
  std::optional<p2p::Topology> topology_;
};

}  // namespace

p2p::Endpoints prefer_shared_memory(p2p::Endpoints endpoints, const std::string& group,
                                    const Locality& locality, const Deadline& deadline) {
  if (endpoints.transport->size() < 2) return endpoints;
  return SetUp(std::move(endpoints), group, locality, deadline).run();
}

}  // namespace dtrain
