// What a leader does with what its store's clients say and with the time: sets become joins, beats and
// words, events become numbered events. Opens no socket, starts no thread and reads only the clocks it is
// given; everything but waiting happens on the thread of the store's server.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/rendezvous/boot_clock.h"
#include "cluster/rendezvous/leader/leader_state.h"
#include "cluster/rendezvous/server.h"
#include "cluster/store/store_observer.h"

namespace dtrain::rendezvous {

class ServerObserver final : public StoreObserver {
 public:
  /// `own`: where others find it. `steady` counts what only this process sees, `boot`
  /// what launchers hold each other to; both borrowed.
  ServerObserver(const ServerOptions& options, Endpoint own, bool stands_by,
                 const Clock& steady = steady_clock(), const Clock& boot = boot_clock());

  std::string_view prefix() const noexcept override { return kPrefix; }
  std::string on_set(StoreControl& store, std::uint64_t client, std::string_view key,
                     std::string_view value) override;
  void on_leave(StoreControl& store, std::uint64_t client, bool closed) override;
  TimePoint on_turn(StoreControl& store, TimePoint now) override;

  // From any thread.
  const Endpoint& endpoint() const noexcept { return own_; }
  void lead(Succession succession);
  bool leads() const;
  enum class End {
    heard,      ///< the job is over, and every launcher has heard so
    over,       ///< not every one had when the deadline passed
    elsewhere,  ///< another one leads
    not_yet
  };
  End wait_until_over(const Deadline& deadline) const;

  // For those who look on, from the server's thread.
  const LeaderState& state() const noexcept { return state_; }

 private:
  std::string join(std::uint64_t client, std::string_view value, TimePoint now);
  void beat(std::uint64_t client, std::string_view value, TimePoint now);
  LeaseGrant grant();
  /// There are voters, and this launcher leads them.
  bool has_voters() const { return leadership_ != nullptr && leadership_->leads(); }

  std::string vote(std::string_view value);
  std::string hear_announcement(StoreControl& store, std::string_view value);
  std::string refer() const;
  void depose(StoreControl& store);
  void take_lead(StoreControl& store);
  bool keep_leading(StoreControl& store);
  void found_voters();

  void publish(StoreControl& store, TimePoint now);
  bool may_tell(const LeaderEvent& event) const;

  const Endpoint own_;
  const Clock& steady_;
  const Clock& boot_;
  LeaderState state_;
  Leadership* const leadership_;
  bool tell_snapshot_ = false;
  std::set<std::uint64_t> clients_;
  const Duration keep_events_;
  mutable std::mutex mutex_;  // guards over_, unheard_, leading_ and succession_
  mutable std::condition_variable ended_;
  bool over_ = false, leading_ = false;
  std::size_t unheard_ = 0;  // launchers that have not heard the end
  std::optional<Succession> succession_;
};

}  // namespace dtrain::rendezvous
