// The board of a group whose ranks share the rendezvous store: keys in it.
#pragma once

#include <string>

#include "cluster/store/store.h"
#include "collectives/p2p/transport.h"

namespace dtrain {

class StoreBoard final : public p2p::Board {
 public:
  /// `store` is borrowed; keys begin with `prefix`.
  StoreBoard(Store& store, std::string prefix, int rank)
      : store_(store), prefix_(std::move(prefix)), rank_(rank) {}

  void post_note(std::string_view note) noexcept override;
  std::optional<std::string> note_of(int rank) noexcept override;
  std::string post_end(std::string_view reason) noexcept override;
  std::optional<std::string> end() noexcept override;
  void tidy() noexcept override {}

 private:
  // Runs `ask(deadline)` unless the store has failed too often; nullopt when it fails.
  template <class Ask>
  auto attempt(Ask ask) noexcept -> std::optional<decltype(ask(Deadline::never()))>;
  std::string note_key(int rank) const { return prefix_ + "/note/" + std::to_string(rank); }

  Store& store_;
  const std::string prefix_;
  const int rank_;
  int failures_ = 0;
};

}  // namespace dtrain
