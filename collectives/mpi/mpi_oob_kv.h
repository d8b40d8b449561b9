// The out-of-band key-value store of an mpi group: short messages to everyone on a communicator of their own,
// picked up when somebody looks.
#pragma once

#include <list>
#include <map>
#include <memory>

#include "collectives/mpi/mpi_runtime.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

class MpiOobKv final : public p2p::OobKv {
 public:
  explicit MpiOobKv(std::shared_ptr<OwnedComm> comm);
  ~MpiOobKv() override;

  void put_record(std::string_view record) noexcept override;
  std::optional<std::string> record_of(int rank) noexcept override;
  std::string put_failure(std::string_view reason) noexcept override;
  std::optional<std::string> failure() noexcept override;
  void drain() noexcept override { collect(); }

 private:
  struct PendingText {
    std::string text;
    std::vector<MPI_Request> sends;
  };
  void send_to_all(std::string text, int tag) noexcept;
  void collect() noexcept;

  std::shared_ptr<OwnedComm> comm_;
  int rank_ = 0, size_ = 1;
  std::list<PendingText> under_way_;
  std::map<int, std::string> records_;
  std::map<int, std::string> failures_;  // by the rank that said so
};

}  // namespace dtrain
