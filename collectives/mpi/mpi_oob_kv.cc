#include "collectives/mpi/mpi_oob_kv.h"

#include "collectives/mpi/mpi_check.h"

namespace dtrain {
namespace {

constexpr int kRecordTag = 1, kFailureTag = 2;

}  // namespace

MpiOobKv::MpiOobKv(std::shared_ptr<OwnedComm> comm) : comm_(std::move(comm)) {
  check(MpiResult{MPI_Comm_rank(comm_->get(), &rank_)}, "MPI_Comm_rank");
  check(MpiResult{MPI_Comm_size(comm_->get(), &size_)}, "MPI_Comm_size");
}

MpiOobKv::~MpiOobKv() {
  // Records nobody looked at would stay in MPI's queues; texts not yet sent refer to our memory.
  collect();
  for (PendingText& pending : under_way_) {
    for (MPI_Request& request : pending.sends) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request), MPI_Request_free(&request);
    }
  }
}

void MpiOobKv::send_to_all(std::string text, int tag) noexcept {
  PendingText& pending = under_way_.emplace_back();
  pending.text = std::move(text);
  pending.sends.reserve(static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(pending.text.data(), static_cast<int>(pending.text.size()), MPI_CHAR, peer, tag,
                  comm_->get(), &request) == MPI_SUCCESS) {
      pending.sends.push_back(request);
    }
  }
  collect();
}

// Receives what has arrived and drops texts that have been sent.
void MpiOobKv::collect() noexcept {
  int found = 1;
  while (found != 0) {
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_->get(), &found, &status) != MPI_SUCCESS || found == 0)
      break;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    if (MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, comm_->get(),
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      break;
    }
    (status.MPI_TAG == kFailureTag ? failures_ : records_)[status.MPI_SOURCE] = std::move(text);
  }
  under_way_.remove_if([](PendingText& pending) {
    int done = 0;
    MPI_Testall(static_cast<int>(pending.sends.size()), pending.sends.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  });
}

void MpiOobKv::put_record(std::string_view record) noexcept { send_to_all(std::string(record), kRecordTag); }

std::optional<std::string> MpiOobKv::record_of(int rank) noexcept {
  collect();
  const auto record = records_.find(rank);
  return record == records_.end() ? std::nullopt : std::optional(record->second);
}

// Without a referee two ranks may each think they were first; their reasons then concern the same trouble.
std::string MpiOobKv::put_failure(std::string_view reason) noexcept {
  if (auto first = failure()) return *first;
  failures_[rank_] = std::string(reason);
  send_to_all(std::string(reason), kFailureTag);
  return std::string(reason);
}

std::optional<std::string> MpiOobKv::failure() noexcept {
  collect();
  return failures_.empty() ? std::nullopt : std::optional(failures_.begin()->second);
}

}  // namespace dtrain
