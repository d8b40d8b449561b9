// The out-of-band key-value store of a group whose ranks share the rendezvous store: keys in it.
#pragma once

#include <string>

#include "cluster/store/store.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

class StoreOobKv final : public p2p::OobKv {
 public:
  /// `store` is borrowed; keys begin with `prefix`.
  StoreOobKv(Store& store, std::string prefix, int rank)
      : store_(store), prefix_(std::move(prefix)), rank_(rank) {}

  void put_record(std::string_view record) noexcept override;
  std::optional<std::string> record_of(int rank) noexcept override;
  std::string put_failure(std::string_view reason) noexcept override;
  std::optional<std::string> failure() noexcept override;
  void drain() noexcept override {}

 private:
  // Runs `ask(deadline)` unless the store has failed too often; nullopt when it fails.
  template <class Ask>
  auto attempt(Ask ask) noexcept -> std::optional<decltype(ask(Deadline::never()))>;
  std::string record_key(int rank) const { return prefix_ + "/note/" + std::to_string(rank); }

  Store& store_;
  const std::string prefix_;
  const int rank_;
  int failures_ = 0;
};

}  // namespace dtrain
