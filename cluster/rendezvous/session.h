// One launcher's conversation with the leader as a state machine over messages and time: no socket, no
// thread. Member gives it both; the scale benchmark runs thousands in one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/quorum/leadership.h"
#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/protocol.h"
#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {

// Keys that a launcher sets at the leader's store, and waits for.
inline constexpr std::string_view kPrefix = "rdzv/";
inline constexpr std::string_view kJoinKey = "rdzv/join";  ///< an offer; the answer is a join_answer()
inline constexpr std::string_view kBeatKey = "rdzv/beat";
inline constexpr std::string_view kNodeEventKey = "rdzv/node_event";
inline constexpr std::string_view kSilenceKey = "rdzv/silence";  ///< the lease ran out without an answer
inline constexpr std::string_view kHeardKey = "rdzv/heard";      ///< the last events have been
/// The events of that number, for all launchers.
std::string event_key(std::uint64_t number);

/// The number of the first event a newcomer is to hear, and whether it is in.
std::string join_answer(std::uint64_t first_event, std::string_view admission);

/// What kNodeEventKey is set to: a launcher's words are numbered from 1.
struct NumberedEvent {
  std::uint64_t number = 0;
  std::string_view event;
};
std::string number_event(std::uint64_t number, std::string_view event);
/// Of anything else than number_event() yields: an empty word.
NumberedEvent split_event(std::string_view bytes);

struct SessionTimes {
  Duration beat = std::chrono::seconds(1);
  Duration lease = std::chrono::seconds(4);
  /// How long another leader is looked for when the lease has run out, where there can be one.
  Duration succession = std::chrono::seconds(12);
  /// How long a launcher that is sent on to a leader, and has no slot, looks for one.
  Duration join = std::chrono::seconds(600);
};

class Session {
 public:
  /// Over a connection that has authenticated. `leadership` (borrowed): where the leader can be succeeded.
  Session(const NodeOffer& offer, SessionTimes times, TimePoint now, Leadership* leadership = nullptr);

  /// A message of the connection that has been authenticated last.
  void receive(std::string_view message, TimePoint now);
  void say(const NodeEvent& event, TimePoint now);
  /// The connection broke. The session continues over another one when resume() is called before the lease
  /// has run out; `why` is told when it is not.
  void interrupt(std::string why);
  /// The same, by the leader's machine, which has closed it in order. Where nobody can succeed the leader it
  /// is not waited for longer than hang_up_patience().
  void hang_up(std::string why, TimePoint now);
  bool interrupted() const noexcept { return !ended_ && !cause_.empty(); }
  /// Over another connection that has authenticated: asks for the same slot, then says again what was not
  /// answered.
  void resume(TimePoint now);
  /// The lease has run out, so nothing may be at work here, but another leader may be found within the time
  /// for that: interrupted(), and to be resumed with whom it is.
  bool orphaned() const noexcept { return orphaned_until_.has_value() && interrupted(); }
  /// This is not the place to join: that is `leader`, or not known yet where that has no port. Ends with
  /// rejoin().
  const std::optional<Endpoint>& elsewhere() const noexcept { return elsewhere_; }
  /// As resume(), for a launcher that has no slot yet or whose slot was no job's.
  void rejoin(TimePoint now);
  /// It has asked for a slot and has not been answered: whom it will follow is open.
  bool joining() const noexcept { return joining_; }
  /// What a successor must know; rounds as of the newest Forming.
  const Snapshot& known() const noexcept { return known_; }
  int place() const noexcept { return place_; }
  /// This node is about to leave, and promises nothing any more: no heartbeat from now on, so that its lease
  /// is not waited for longer than it must be. What it says is sent as before.
  void hush() noexcept { hushed_ = true; }
  /// It cannot continue: from now on only LeaseLost is told.
  void lose(std::string why);
  /// Beats when due; ends the session when the lease has run out. Returns when to call again at the latest.
  TimePoint tick(TimePoint now);

  /// Messages to be sent; the sender erases them.
  std::vector<std::string>& out() noexcept { return out_; }
  /// The next event, encoded, `self` filled in.
  std::optional<std::string> take();
  /// The leader has admitted this node.
  bool admitted() const noexcept { return place_ >= 0; }
  /// When the lease runs out, if nothing more is answered.
  TimePoint lease_ends() const noexcept { return lease_ends_; }
  /// After Over, Refused or LeaseLost nothing more comes.
  bool ended() const noexcept { return ended_; }

 private:
  std::uint64_t ask(wire::Op op, std::string_view key, std::string value);
  void set(std::string_view key, std::string value, TimePoint now);
  void await_event();
  void answered(wire::Response& response, TimePoint now);
  void take_admission(std::string_view answer, TimePoint asked, TimePoint now);
  void take_grant(const LeaseGrant& grant, TimePoint asked, TimePoint now);
  void hear(std::string event, TimePoint now);
  bool hear_own_exclusion(const std::string& event);
  void remember(const std::string& event, TimePoint now);
  void connected_again(TimePoint now);
  void put_aside(std::string why);
  void give_up_joining(TimePoint now);
  void beat(TimePoint now);
  bool successors() const noexcept { return known_.voters.size() >= kLeastVoters; }

  void say_numbered(std::string numbered, TimePoint now);

  NodeOffer offer_;
  SessionTimes times_;
  Leadership* leadership_;
  std::string cause_;               // of the interruption
  std::uint64_t own_events_ = 0;    // said so far
  std::deque<std::string> unsaid_;  // numbered words, while interrupted
  std::vector<std::string> out_;
  std::deque<std::string> events_;
  std::uint64_t next_request_ = 1;
  std::uint64_t join_request_ = 0, event_request_ = 0;
  std::uint64_t next_event_ = 0;
  int place_ = -1;
  std::optional<int> index_;  // in the round that forms or runs
  int round_ = -1;
  struct Sent {
    std::uint64_t request = 0;
    TimePoint at{};
    std::string event;  // numbered; empty: no word
  };
  std::deque<Sent> unanswered_;  // sets only; the server answers them in order
  TimePoint lease_from_, lease_ends_, next_beat_;
  TimePoint unadmitted_since_;
  std::optional<TimePoint> hung_up_until_;
  std::optional<TimePoint> orphaned_until_;  // the lease has run out
  TimePoint patience_{};                     // with a leader who has not granted anything yet
  std::optional<Endpoint> elsewhere_;
  Snapshot known_;
  bool joining_ = true;
  bool hushed_ = false;
  bool votes_ = false;  // it is one of the voters
  bool at_work_ = false;
  std::optional<int> ended_with_;  // the round's part
  bool ended_ = false;
};

}  // namespace dtrain::rendezvous
