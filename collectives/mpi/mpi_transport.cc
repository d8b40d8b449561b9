#include "collectives/mpi/mpi_transport.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "collectives/mpi/mpi_check.h"
#include "collectives/mpi/mpi_oob_kv.h"
#include "collectives/p2p/backoff.h"
#include "collectives/p2p/bootstrap_watchdog.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Both low bits of a fingerprint's phases and 28 of its high ones: Open MPI's tags have 31 bits.
int mpi_tag(std::uint64_t tag) noexcept {
  return static_cast<int>((tag >> 36) << 2 | (tag & 3)) & 0x3fffffff;
}

// One message may not exceed what an int can count.
constexpr std::size_t kMostBytesAMessage = 1U << 30;
// Up to this many bytes go in pieces that MPI passes on at once (Open MPI's shared memory: below 4 KiB,
// header included): its hand-shake for larger messages costs more than copying them through its buffers.
constexpr std::size_t kMostBytesInPieces = 64 * 1024, kPieceBytes = 2048;

class MpiBuffer final : public p2p::UnboundBuffer {
 public:
  MpiBuffer(MPI_Comm comm, void* data, const bool& closed, p2p::Patience patience)
      : comm_(comm), data_(static_cast<std::byte*>(data)), closed_(closed), patience_(patience) {}

  ~MpiBuffer() override {
    // Only after a failure is anything left. A receive is taken back, so that nothing is written here any
    // more; a send cannot be: its request is given up, and its memory only read.
    for (MPI_Request& request : receives_) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request), MPI_Request_free(&request);
    }
    for (MPI_Request& request : sends_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

  void send(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) override {
    each_piece(offset, bytes, [&](std::byte* data, int length) {
      check(MpiResult{MPI_Isend(data, length, MPI_BYTE, peer, mpi_tag(tag), comm_, &sends_.emplace_back())},
            "MPI_Isend");
    });
  }

  void receive(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) override {
    each_piece(offset, bytes, [&](std::byte* data, int length) {
      check(
          MpiResult{MPI_Irecv(data, length, MPI_BYTE, peer, mpi_tag(tag), comm_, &receives_.emplace_back())},
          "MPI_Irecv");
    });
  }

  void wait_sends(p2p::Watchdog& watchdog) override { wait(sends_, watchdog); }
  void wait_receives(p2p::Watchdog& watchdog) override { wait(receives_, watchdog); }

 private:
  template <class Start>
  void each_piece(std::size_t offset, std::size_t bytes, Start start) {
    if (closed_) throw p2p::LinkLost("the group is closed", -1);
    const std::size_t piece = bytes <= kMostBytesInPieces ? kPieceBytes : kMostBytesAMessage;
    for (std::size_t done = 0; done < bytes; done += piece) {
      start(data_ + offset + done, static_cast<int>(std::min(piece, bytes - done)));
    }
  }

  void wait(std::vector<MPI_Request>& requests, p2p::Watchdog& watchdog) {
    if (requests.empty()) return;
    p2p::Backoff backoff(watchdog, patience_);
    int done = 0;
    while (true) {
      check(MpiResult{MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                                  MPI_STATUSES_IGNORE)},
            "MPI_Testall");
      if (done != 0) break;
      backoff.pause();
    }
    requests.clear();
  }

  MPI_Comm comm_;
  std::byte* data_;
  const bool& closed_;
  const p2p::Patience patience_;
  std::vector<MPI_Request> sends_, receives_;
};

// What ranks tell each other at the start.
struct PeerInfo {
  std::array<char, 64> host;
  ProcessName process;
};

PeerInfo own_info(const std::string& host) {
  PeerInfo info{};
  host.copy(info.host.data(), info.host.size() - 1);
  info.process = ProcessName::own();
  return info;
}

std::shared_ptr<OwnedComm> duplicate(const std::shared_ptr<MpiRuntime>& runtime, MPI_Comm comm,
                                     const Deadline& deadline) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MpiResult{MPI_Comm_idup(comm, &copy, &request)}, "MPI_Comm_idup");
  p2p::BootstrapWatchdog watchdog("mpi", deadline);
  p2p::Backoff backoff(watchdog, p2p::Patience::waiting);
  for (int done = 0; done == 0;) {
    check(MpiResult{MPI_Test(&request, &done, MPI_STATUS_IGNORE)}, "MPI_Test");
    if (done == 0) backoff.pause();
  }
  return std::make_shared<OwnedComm>(runtime, copy);
}

}  // namespace

MpiTransport::MpiTransport(const MpiContext& shared, std::shared_ptr<OwnedComm> comm,
                           const Deadline& deadline)
    : shared_(shared), comm_(std::move(comm)) {
  check(MpiResult{MPI_Comm_rank(comm_->get(), &rank_)}, "MPI_Comm_rank");
  check(MpiResult{MPI_Comm_size(comm_->get(), &size_)}, "MPI_Comm_size");
  hosts_.resize(static_cast<std::size_t>(size_));
  hosts_[static_cast<std::size_t>(rank_)] = shared_.host;
  introduce(deadline);
  // All cores of the machine, not those this process is bound to: bound ranks have cores of their own.
  has_core_ = std::count(hosts_.begin(), hosts_.end(), host_of(rank_)) <= ::sysconf(_SC_NPROCESSORS_ONLN);
}

MpiTransport::~MpiTransport() { close(false); }

void MpiTransport::introduce(const Deadline& deadline) {
  const PeerInfo mine = own_info(hosts_[static_cast<std::size_t>(rank_)]);
  std::vector<PeerInfo> infos(hosts_.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MpiResult{MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, infos.data(), sizeof mine, MPI_BYTE,
                                 comm_->get(), &request)},
        "MPI_Iallgather");
  p2p::BootstrapWatchdog watchdog("mpi", deadline);
  p2p::Backoff backoff(watchdog, p2p::Patience::waiting);
  for (int done = 0; done == 0;) {
    check(MpiResult{MPI_Test(&request, &done, MPI_STATUS_IGNORE)}, "MPI_Test");
    if (done == 0) backoff.pause();
  }
  std::vector<ProcessName> processes(infos.size());
  for (std::size_t r = 0; r < infos.size(); ++r) {
    hosts_[r] = infos[r].host.data();
    if (hosts_[r] == mine.host.data()) processes[r] = infos[r].process;
  }
  processes_ = PeerProcesses(processes);
}

void MpiTransport::set_patient(bool patient) noexcept {
  patience_ = !patient ? p2p::Patience::none : has_core_ ? p2p::Patience::alone : p2p::Patience::waiting;
}

std::unique_ptr<p2p::UnboundBuffer> MpiTransport::make_buffer(void* data, std::size_t) {
  return std::make_unique<MpiBuffer>(comm_->get(), data, closed_, patience_);
}

int MpiTransport::take_any(std::uint64_t tag, p2p::Watchdog& watchdog) {
  if (closed_) throw p2p::LinkLost("the group is closed", -1);
  p2p::Backoff backoff(watchdog, patience_);
  MPI_Status status;
  for (int found = 0; found == 0;) {
    check(MpiResult{MPI_Iprobe(MPI_ANY_SOURCE, mpi_tag(tag), comm_->get(), &found, &status)}, "MPI_Iprobe");
    if (found == 0) backoff.pause();
  }
  char taken = 0;
  check(MpiResult{MPI_Recv(&taken, 1, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_->get(),
                           MPI_STATUS_IGNORE)},
        "MPI_Recv");
  return status.MPI_SOURCE;
}

void MpiTransport::close(bool failed) noexcept {
  closed_ = true;
  if (failed) shared_.runtime->mark_failed();
}

p2p::Endpoints MpiTransport::split(const std::vector<int>& members, const std::string& name,
                                   const Deadline& deadline) {
  // All ranks of this group are here, in groups that do not overlap: the lowest member stands for the group.
  const int color = *std::min_element(members.begin(), members.end());
  const auto key = std::find(members.begin(), members.end(), rank_) - members.begin();
  MPI_Comm part = MPI_COMM_NULL;
  check(MpiResult{MPI_Comm_split(comm_->get(), color, static_cast<int>(key), &part)}, "MPI_Comm_split");
  const OwnedComm owned(shared_.runtime, part);
  return make_mpi_endpoints(shared_, part, name, deadline);
}

p2p::Endpoints make_mpi_endpoints(const MpiContext& shared, MPI_Comm comm, const std::string& name,
                                  const Deadline& deadline) {
  p2p::Endpoints endpoints;
  endpoints.transport =
      std::make_unique<MpiTransport>(shared, duplicate(shared.runtime, comm, deadline), deadline);
  endpoints.oob = std::make_unique<MpiOobKv>(duplicate(shared.runtime, comm, deadline));
  return shared.prefer_memory(std::move(endpoints), name, shared.locality, deadline);
}

}  // namespace dtrain
