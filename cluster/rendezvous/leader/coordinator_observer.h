// What a coordinator does with what its store's clients say and with the time: sets become joins, beats and
// words, news become numbered events. Opens no socket, starts no thread and reads only the clocks it is
// given; everything but waiting happens on the thread of the store's server.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/rendezvous/boot_clock.h"
#include "cluster/rendezvous/coordinator.h"
#include "cluster/rendezvous/leader/herald.h"
#include "cluster/rendezvous/leader/office.h"
#include "cluster/rendezvous/succession.h"
#include "cluster/store/store_observer.h"

namespace dtrain::rendezvous {

class CoordinatorObserver final : public StoreObserver {
 public:
  /// `own`: where others find it; `rules` as `options`. `steady` counts what only this process sees, `boot`
  /// what launchers hold each other to; both borrowed.
  CoordinatorObserver(const CoordinatorOptions& options, Endpoint own, JobRules rules, bool stands_by,
                      const Clock& steady = steady_clock(), const Clock& boot = boot_clock());

  std::string_view prefix() const noexcept override { return kPrefix; }
  std::string on_set(StoreDesk& desk, std::uint64_t client, std::string_view key,
                     std::string_view value) override;
  void on_leave(StoreDesk& desk, std::uint64_t client, bool closed) override;
  TimePoint on_turn(StoreDesk& desk, TimePoint now) override;

  // From any thread.
  const Endpoint& endpoint() const noexcept { return own_; }
  void lead(Mandate mandate);
  bool leads() const;
  enum class End {
    heard,      ///< the job is over, and every launcher has heard so
    over,       ///< not every one had when the deadline passed
    elsewhere,  ///< another one leads
    not_yet
  };
  End wait_until_over(const Deadline& deadline) const;

  // For those who look on, from the server's thread.
  const Office& office() const noexcept { return office_; }
  /// From the first round on, where there is succession and this one leads.
  const std::optional<Council>& council() const noexcept { return council_; }

 private:
  std::string join(std::uint64_t client, std::string_view value, TimePoint now);
  void beat(std::uint64_t client, std::string_view value, TimePoint now);
  Grant grant() const;
  Duration slack() const noexcept;
  std::uint64_t epoch() const noexcept { return options_.voter == nullptr ? 0 : office_.epoch(); }

  std::string vote(std::string_view value);
  std::string hear_claim(StoreDesk& desk, std::string_view value);
  std::string refer() const;
  void depose(StoreDesk& desk);
  void take_office(StoreDesk& desk);
  void inherit(const Mandate& mandate);
  void send_herald();
  bool keep_office(StoreDesk& desk);
  void found_council();

  void publish(StoreDesk& desk, TimePoint now);
  bool established_or_alone() const { return !council_ || established_; }

  const CoordinatorOptions options_;
  const Endpoint own_;
  const Clock& steady_;
  const Clock& boot_;
  Office office_;
  std::optional<Council> council_;
  std::unique_ptr<Herald> herald_;
  bool established_ = false;  // a majority follows
  TimePoint establish_until_{}, next_look_{};
  bool tell_leadership_ = false;
  std::set<std::uint64_t> clients_;
  const Duration keep_events_;
  mutable std::mutex mutex_;  // guards over_, unheard_, leading_ and elected_
  mutable std::condition_variable ended_;
  bool over_ = false, leading_ = false;
  std::size_t unheard_ = 0;  // launchers that have not heard the end
  std::optional<Mandate> elected_;
};

}  // namespace dtrain::rendezvous
