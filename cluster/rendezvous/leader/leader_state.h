// A leader's state: its membership and the events that it has told.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/session.h"

namespace dtrain::rendezvous {

class LeaderState {
 public:
  /// An event with its number, which counts from 0 for each leader.
  struct Event {
    std::uint64_t number = 0;
    std::string event;  ///< encoded
    TimePoint at{};
  };
  explicit LeaderState(JobRules rules) : rules_(std::move(rules)) {}

  /// This launcher leads.
  bool open() const noexcept { return membership_.has_value(); }
  const Membership& membership() const { return *membership_; }

  void found(TimePoint now);
  void inherit(const Inheritance& inheritance, TimePoint now);
  void close();

  // As the membership's; `client` is a connection of the store's server. While open().
  /// `follows_another`: what it has heard so far was another leader's events.
  Admission join(std::uint64_t client, const NodeOffer& offer, bool follows_another, TimePoint now);
  void beat(std::uint64_t client, TimePoint now);
  void hear(std::uint64_t client, const NumberedEvent& said, TimePoint now);
  void leave(std::uint64_t client, Departure departure, TimePoint now);
  TimePoint tick(TimePoint now);
  /// This client has heard the last events.
  void heard_the_end(std::uint64_t client);
  void set_successors(bool there_are);

  std::uint64_t instance_id_of(std::uint64_t client) const;
  /// Launchers that have a slot and are not known to have heard the end.
  std::size_t unheard();
  /// Connections to be closed.
  std::vector<std::uint64_t> take_lost() { return membership_->take_lost(); }

  /// The number of the first event that a newcomer is to hear: the one that its own coming makes, the first
  /// time.
  std::uint64_t first_event_of(std::uint64_t instance_id) const;
  std::uint64_t next_event() const noexcept { return next_event_; }
  /// Number of events with the newest Forming.
  std::uint64_t formed_at() const noexcept { return formed_at_; }
  const std::deque<Event>& events() const noexcept { return events_; }
  /// What is to be told next; null: nothing.
  const LeaderEvent* next() const { return queue_.empty() ? nullptr : &queue_.front(); }
  bool forms() const;
  const Event& tell_next(TimePoint now);
  const Event& tell(const LeaderEvent& event, TimePoint now);
  void forget_first() { events_.pop_front(); }

 private:
  void collect();
  void start_over();

  const JobRules rules_;
  std::optional<Membership> membership_;
  std::deque<LeaderEvent> queue_;
  std::deque<Event> events_;
  std::uint64_t next_event_ = 0, formed_at_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> first_events_;  // by instance_id
  std::set<std::uint64_t> heard_;                                  // the end, by instance_id
  std::optional<std::set<std::uint64_t>> unheard_;                 // once it is over
};

}  // namespace dtrain::rendezvous
