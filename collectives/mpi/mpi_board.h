// The board of an mpi group: short messages to everyone on a communicator of their own, picked up when
// somebody looks.
#pragma once

#include <list>
#include <map>
#include <memory>

#include "collectives/mpi/mpi_runtime.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

class MpiBoard final : public p2p::Board {
 public:
  explicit MpiBoard(std::shared_ptr<OwnedComm> comm);
  ~MpiBoard() override;

  void post_note(std::string_view note) noexcept override;
  std::optional<std::string> note_of(int rank) noexcept override;
  std::string post_end(std::string_view reason) noexcept override;
  std::optional<std::string> end() noexcept override;
  void tidy() noexcept override { collect(); }

 private:
  struct Letter {
    std::string text;
    std::vector<MPI_Request> sends;
  };
  void send_to_all(std::string text, int tag) noexcept;
  void collect() noexcept;

  std::shared_ptr<OwnedComm> comm_;
  int rank_ = 0, size_ = 1;
  std::list<Letter> under_way_;
  std::map<int, std::string> notes_;
  std::map<int, std::string> ends_;  // by the rank that said so
};

}  // namespace dtrain
