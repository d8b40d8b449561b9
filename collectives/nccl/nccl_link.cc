#include "collectives/nccl/nccl_link.h"

#include <fmt/format.h>

#include <cstring>
#include <sstream>
#include <thread>

namespace dtrain::nccl {
namespace {

constexpr std::chrono::milliseconds kLinkPollEvery{1};
constexpr std::chrono::milliseconds kPeerWait{500};
constexpr int kMostRanksListed = 8;

std::string key_of(const Bootstrap& bootstrap, std::string_view what) {
  return fmt::format("nccl/{}/{}", bootstrap.name, what);
}

/// What the caller has done wrong is told at once; the rest, a peer or a machine may be behind.
bool is_of_the_group(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress && result != ncclInvalidArgument &&
         result != ncclInvalidUsage;
}

/// What a rank leaves in the store for the others: its process, and the name of its host.
std::string info_of(const std::string& host) {
  const auto [pid, pid_namespace] = ProcessName::own();
  return fmt::format("{} {} {}", pid, pid_namespace, host);
}

/// Reads what info_of() wrote.
std::pair<ProcessName, std::string> read_info(const std::string& info) {
  ProcessName process;
  std::istringstream text(info);
  std::string host;
  text >> process.pid >> process.pid_namespace >> host;
  return {process, host};
}

/// Who has not come to the store, for people.
std::string missing_ranks(const Bootstrap& bootstrap, int& first) {
  std::string text;
  int missing = 0;
  for (int rank = 0; rank < bootstrap.size; ++rank) {
    const auto host =
        bootstrap.store->try_get(key_of(bootstrap, fmt::format("peer/{}", rank)), Deadline::after(kPeerWait));
    if (host) continue;
    if (missing++ == 0) first = rank;
    if (missing <= kMostRanksListed) text += fmt::format("{}{}", text.empty() ? "rank " : ", ", rank);
  }
  if (missing > kMostRanksListed) text += fmt::format(" and {} more", missing - kMostRanksListed);
  return missing == 0 ? "none, but NCCL did not connect them: check NCCL_SOCKET_IFNAME and firewalls" : text;
}

[[noreturn]] void throw_late(const Bootstrap& bootstrap, std::string_view doing) {
  PeerFailure failure;
  failure.operation = "connect";
  std::string missing = "unknown, the store is lost";
  try {
    missing = missing_ranks(bootstrap, failure.rank);
  } catch (const std::exception&) {
    // The rank stays unknown.
  }
  throw PeerError(
      fmt::format("backend nccl, group '{}', rank {} of {}: {} took longer than allowed; missing: {}",
                  bootstrap.name, bootstrap.rank, bootstrap.size, doing, missing),
      std::move(failure));
}

// A recorded collective would have its buffers registered with the peers (NCCL_GRAPH_REGISTER), which wants
// memory from ncclMemAlloc or cudaMalloc; ours is a pool's. Who has set the variable has reasons.
void keep_graphs_unregistered() {
  static std::once_flag once;
  std::call_once(once, [] { ::setenv("NCCL_GRAPH_REGISTER", "0", 0); });
}

}  // namespace

NcclLink::NcclLink(const Bootstrap& bootstrap, const Deadline& deadline) : rank_(bootstrap.rank) {
  keep_graphs_unregistered();
  check(cudaSetDevice(bootstrap.device->index()), "choose the GPU for NCCL");
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for stream priorities");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
        "create the communication stream");
  stream_.reset(stream);
  meet(bootstrap, deadline);
}

void NcclLink::meet(const Bootstrap& bootstrap, const Deadline& deadline) {
  Store& store = *bootstrap.store;
  ncclUniqueId id{};
  std::vector<ProcessName> processes;
  try {
    store.set(key_of(bootstrap, fmt::format("peer/{}", bootstrap.rank)), info_of(bootstrap.host), deadline);
    if (bootstrap.rank == 0) {
      check(ncclGetUniqueId(&id), "make an NCCL id");
      store.set(key_of(bootstrap, "id"), std::string_view(id.internal, sizeof id.internal), deadline);
    }
    for (int rank = 0; rank < bootstrap.size; ++rank) {
      auto [process, host] = read_info(store.get(key_of(bootstrap, fmt::format("peer/{}", rank)), deadline));
      processes.push_back(host == bootstrap.host ? process : ProcessName{});
      hosts_.push_back(std::move(host));
    }
    const std::string text = store.get(key_of(bootstrap, "id"), deadline);
    std::memcpy(id.internal, text.data(), std::min(text.size(), sizeof id.internal));
  } catch (const PeerError&) {
    if (!deadline.expired()) throw;
    throw_late(bootstrap, "meeting the other ranks in the store");
  }
  processes_ = PeerProcesses(processes);
  connect(bootstrap, id, deadline);
}

void NcclLink::connect(const Bootstrap& bootstrap, const ncclUniqueId& id, const Deadline& deadline) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t started = ncclCommInitRankConfig(&comm, bootstrap.size, id, bootstrap.rank, &config);
  comm_.reset(comm);
  check(started, "start NCCL", comm);
  ncclResult_t state = ncclInProgress;
  while (true) {
    check(ncclCommGetAsyncError(comm, &state), "ask NCCL for its state", comm);
    if (state != ncclInProgress) break;
    if (deadline.expired()) throw_late(bootstrap, "connecting through NCCL");
    std::this_thread::sleep_for(kLinkPollEvery);
  }
  check(state, fmt::format("connect rank {} of {} through NCCL", bootstrap.rank, bootstrap.size), comm);
}

void NcclLink::queue(const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call, std::string_view what,
                     const std::function<bool()>& ended) {
  {
    const std::lock_guard lock(mutex_);
    if (!comm_) return;  // dead: the next call says so
    const ncclResult_t result = call(comm_.get(), stream_.get());
    // A failure of the group is the watchdog's to report: it knows what the other ranks say.
    if (is_of_the_group(result) || failure_now()) {
      if (!failed_call_) failed_call_ = describe(result, comm_.get());
    } else {
      check(result, what, comm_.get());
    }
  }
  Patience patience;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (!comm_) return;
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(comm_.get(), &state), "ask NCCL for its state", comm_.get());
      if (state == ncclSuccess && !failed_call_) return;
    }
    if (ended()) return;
    patience.wait();
  }
}

std::optional<std::string> NcclLink::failure() {
  const std::lock_guard lock(mutex_);
  if (!comm_ || failed_call_) return failed_call_;
  return failure_now();
}

// With the lock held.
std::optional<std::string> NcclLink::failure_now() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_.get(), &state);
  const ncclResult_t found = asked != ncclSuccess ? asked : state;
  if (found == ncclSuccess || found == ncclInProgress) return std::nullopt;
  return describe(found, comm_.get());
}

void NcclLink::kill() noexcept {
  UniqueComm dying;
  {
    const std::lock_guard lock(mutex_);
    dying = std::move(comm_);
  }
  // Aborted outside the lock: NCCL may wait until graphs that hold its calls are gone, and the thread that
  // releases them must get past queue().
}

void NcclLink::finish(const Deadline& deadline) noexcept {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  ncclResult_t state = ncclCommFinalize(comm_.get());
  while (state == ncclSuccess || state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm_.get(), &state) != ncclSuccess) break;
    if (state == ncclSuccess) {
      static_cast<void>(ncclCommDestroy(comm_.release()));
      return;
    }
    if (deadline.expired()) break;
    std::this_thread::sleep_for(kLinkPollEvery);
  }
  comm_.reset();
}

}  // namespace dtrain::nccl
