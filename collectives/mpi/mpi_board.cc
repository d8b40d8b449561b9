#include "collectives/mpi/mpi_board.h"

#include <algorithm>
#include <thread>

#include "collectives/mpi/mpi_check.h"

namespace dtrain {
namespace {

constexpr int kNoteTag = 1, kEndTag = 2;

}  // namespace

MpiBoard::MpiBoard(std::shared_ptr<OwnedComm> comm) : comm_(std::move(comm)) {
  check(MpiResult{MPI_Comm_rank(comm_->get(), &rank_)}, "MPI_Comm_rank");
  check(MpiResult{MPI_Comm_size(comm_->get(), &size_)}, "MPI_Comm_size");
}

MpiBoard::~MpiBoard() {
  // Notes nobody looked at would stay in MPI's queues; letters not yet gone refer to our memory.
  collect();
  for (Letter& letter : under_way_) {
    for (MPI_Request& request : letter.sends) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request), MPI_Request_free(&request);
    }
  }
}

void MpiBoard::send_to_all(std::string text, int tag) noexcept {
  Letter& letter = under_way_.emplace_back();
  letter.text = std::move(text);
  letter.sends.reserve(static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(letter.text.data(), static_cast<int>(letter.text.size()), MPI_CHAR, peer, tag, comm_->get(),
                  &request) == MPI_SUCCESS) {
      letter.sends.push_back(request);
    }
  }
  collect();
}

// Takes in what has come and lets go of letters that have gone.
void MpiBoard::collect() noexcept {
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
    (status.MPI_TAG == kEndTag ? ends_ : notes_)[status.MPI_SOURCE] = std::move(text);
  }
  under_way_.remove_if([](Letter& letter) {
    int done = 0;
    MPI_Testall(static_cast<int>(letter.sends.size()), letter.sends.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  });
}

void MpiBoard::post_note(std::string_view note) noexcept { send_to_all(std::string(note), kNoteTag); }

std::optional<std::string> MpiBoard::note_of(int rank) noexcept {
  collect();
  const auto note = notes_.find(rank);
  return note == notes_.end() ? std::nullopt : std::optional(note->second);
}

// Without a referee two ranks may each think they were first; their reasons then concern the same trouble.
std::string MpiBoard::post_end(std::string_view reason) noexcept {
  if (auto first = end()) return *first;
  ends_[rank_] = std::string(reason);
  send_to_all(std::string(reason), kEndTag);
  return std::string(reason);
}

std::optional<std::string> MpiBoard::end() noexcept {
  collect();
  return ends_.empty() ? std::nullopt : std::optional(ends_.begin()->second);
}

}  // namespace dtrain
