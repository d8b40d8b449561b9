// The leader's mind as a pure state machine: joins, events of nodes, leases and the time go in, events for
// the launchers comes out. Reads no clock and does no I/O. docs/decisions/010-rendezvous.md has the rules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/quorum/voters.h"
#include "cluster/rendezvous/protocol.h"
#include "cluster/rendezvous/restart_progress.h"
#include "cluster/rendezvous/slot_table.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {

/// What a job is held to.
struct JobRules {
  int min_nodes = 1, max_nodes = 1;
  int spares = 0;  ///< standby launchers, one of which replaces a lost node; in a job of fixed size
  int max_restarts = 0;
  int max_stalled_restarts = 0;  ///< of them, in a row without progress; 0: any number
  bool examines = false;         ///< nodes, before the first round and before each restart
  Duration join_timeout = std::chrono::seconds(600);  ///< until the first round; then missing nodes are named
  Duration last_call = std::chrono::seconds(30);      ///< how long MIN nodes wait for MAX
  Duration lease = std::chrono::seconds(4);  ///< a node that hears no answer for this long ends its workers
  Duration lost_after = std::chrono::seconds(6);     ///< without a heartbeat
  Duration form_within = std::chrono::minutes(2);    ///< a node that takes longer to get ready is left behind
  Duration stop_within = std::chrono::minutes(2);    ///< a node that takes longer to end its workers is too
  Duration settle = std::chrono::milliseconds(50);   ///< to find the earliest failure
  Duration waiting_every = std::chrono::seconds(5);  ///< between two Waiting
  std::int64_t launch_time_ns = 0;
  std::string run_id;
  std::uint64_t job = 0;           ///< Snapshot::job
  std::vector<std::string> hosts;  ///< by node_rank, where a batch system tells; to name who is missing
  std::string listening;           ///< "10.0.0.1:29501 (eth0)", for the lines of Waiting
};

/// The answer to a join.
struct Admission {
  int node_rank = 0;               ///< its place: a node's number, from max_nodes on a spare's
  std::string refused;             ///< why; empty: it has a slot
  std::vector<std::string> lines;  ///< what a newcomer may want to know
  bool elsewhere = false;          ///< not decided here: by `leader`, or later where that has no port
  Endpoint leader{};
  std::uint64_t term = 0;  ///< the leader's; 0: it cannot be succeeded
  LeaseGrant grant{};
  bool as_before = false;  ///< of who resumes: it has its part in the round that it knows
};

/// What the leader before has left.
struct Inheritance {
  Snapshot known;
  TimePoint
      heard;  ///< nobody that follows the leader before may have workers longer than lost_after from then
  std::string lost;    ///< in words: who has led
  int host_place = 0;  ///< of the new one
};

/// How a launcher's connection ended.
enum class Departure {
  closed,   ///< it said that it is gone: nothing is at work there
  broken,   ///< the connection is: the node may be at work until its lease has run out
  silent,   ///< by its own side, since its lease has run out
  hung_up,  ///< by its machine: as broken, but its launcher or its node agent has probably ended
};

class Membership {
 public:
  Membership(JobRules rules, TimePoint now);
  /// As a successor: ends the round that was, waits for those who took part to come back or be lost, and
  /// forms another.
  Membership(JobRules rules, const Inheritance& inheritance, TimePoint now);

  /// `id` must be new. A refused launcher has no slot. May end the job for everybody: in one of fixed size
  /// that has not started, a launcher that does not fit means that the right one will never come. One that
  /// resumes gets its own slot back as long as that has not been declared lost.
  Admission join(ConnectionId id, const NodeOffer& offer, TimePoint now);
  void beat(ConnectionId id, TimePoint now);
  /// Words of former rounds and of unknown slots are ignored, and those whose number is not above the last
  /// one's: a launcher whose connection broke says again what was not answered. 0: not numbered.
  void hear(ConnectionId id, const NodeEvent& event, TimePoint now, std::uint64_t number = 0);
  void leave(ConnectionId id, Departure departure, TimePoint now);
  /// Does what is due and returns when to call again at the latest.
  TimePoint tick(TimePoint now);

  /// Events for all that have a slot, in order; those not in a round ignore what concerns it. `self` is not
  /// set: each receiver finds its own node_rank.
  std::vector<LeaderEvent> take_events() { return std::exchange(events_, {}); }
  /// Slots whose leases have run out since the last call: their connections are to be closed.
  std::vector<ConnectionId> take_lost() { return std::exchange(lost_, {}); }
  bool over() const noexcept { return phase_ == Phase::over; }

  /// Whether another launcher could lead. Then the end of the one that hosts this is not the job's, but that
  /// of its leadership.
  void set_successors(bool there_are) noexcept { successors_ = there_are; }
  bool abdicated() const noexcept { return abdicated_; }
  /// Some round has been formed: there is a job to succeed to.
  bool formed() const noexcept { return round_ >= 0; }
  /// All that a successor must know but the voters.
  Snapshot snapshot() const;
  /// Launchers that could lead in addition to `host`'s own, as many as there may be: those of `voters` that
  /// are here, then those that came first. Looks no further than to the last of them.
  std::vector<Voter> eligible(std::uint64_t host, const std::vector<Voter>& voters) const;
  /// The launcher of that connection; 0: none.
  std::uint64_t instance_id_of(ConnectionId id) const;
  bool has_slot(ConnectionId id) const { return slots_.slots().contains(id); }
  /// Of all that have a slot.
  std::vector<std::uint64_t> instance_ids() const;

 private:
  static constexpr int kPeer = static_cast<int>(ExitCode::peer);
  static constexpr int kRequeue = static_cast<int>(ExitCode::requeue);

  enum class Phase { gathering, forming, running, stopping, over };
  struct SeenFailure {
    Failure failure;
    TimePoint at{};
  };

  bool elastic() const noexcept { return rules_.min_nodes < rules_.max_nodes; }
  /// A lost node's part can be taken by another machine. A job that may not restart ends instead.
  bool takes_replacements() const noexcept { return !elastic() && rules_.max_restarts > 0; }
  std::size_t min_nodes() const noexcept { return static_cast<std::size_t>(rules_.min_nodes); }
  bool in_this_round(const Slot& slot, int round) const noexcept { return slot.in_round && round == round_; }

  void on(Slot& slot, const Ready& event, TimePoint now);
  void on(Slot& slot, const Failed& event, TimePoint now);
  void on(Slot& slot, const Ended& event, TimePoint now);
  void on(Slot& slot, const Signalled& event, TimePoint now);
  void on(Slot& slot, const Gone& event, TimePoint now);

  Admission resume(ConnectionId id, const NodeOffer& offer, TimePoint now);
  Admission come_back(Slot& slot, ConnectionId id, TimePoint now);
  Admission claim(ConnectionId id, const NodeOffer& offer, TimePoint now);
  void gather(TimePoint now);
  void gather_again(TimePoint now);
  void form_or_gather(TimePoint now);
  void form(TimePoint now);
  void start();
  void take_in();
  void lose(ConnectionId id, SeenFailure seen, TimePoint now);
  void lose_while_idle(const SeenFailure& seen, TimePoint now);
  void note(SeenFailure seen, TimePoint now);
  void stop_round(TimePoint now);
  void conclude(TimePoint now);
  void finish_early();
  void finish_stalled();
  void conclude_examination(TimePoint now);
  bool examination_goes_on() const;
  void keep_out(const Failure& failure);
  void conclude_signal();
  void finish(int exit_code, std::optional<Failure> failure);
  bool enough_left() const noexcept;
  bool may_go_on() const;

  void expire(TimePoint now);
  bool nobody_goes_on() const noexcept;
  bool host_is_here() const;
  void leave_slow_ones_behind(TimePoint now);
  void say_waiting(TimePoint now);
  std::vector<std::string> waiting_lines(TimePoint now) const;
  std::string slow_ones() const;
  SeenFailure gone(const Slot& slot, TimePoint now) const;
  SeenFailure silent(const Slot& slot, TimePoint now) const;

  /// Nobody is lost before this has passed once the leader could read again what launchers say.
  static constexpr Duration kCatchUp = std::chrono::seconds(1);

  JobRules rules_;
  SlotTable slots_;
  Phase phase_ = Phase::gathering;
  TimePoint begun_;
  int round_ = -1;
  int restarts_ = 0;
  bool started_ = false;  // any round has
  std::vector<RoundNode> nodes_;
  std::vector<std::pair<int, int>> displaced_;  // when they were chosen
  std::size_t unready_ = 0, unended_ = 0;
  std::uint16_t master_port_ = 0;
  std::string master_addr_;
  int host_place_ = 0;  // of the launcher that hosts this
  bool inherited_ = false, successors_ = false, abdicated_ = false;

  std::optional<SeenFailure> found_;    // the cause so far
  std::optional<TimePoint> settle_at_;  // when it is taken for the truth
  std::optional<TimePoint> requeue_at_;
  std::optional<TimePoint> overdue_at_;  // who is not ready, or has not ended, by then is left behind
  std::optional<int> signal_;
  bool requeue_ = false;                         // somebody ended with 75 in this round
  bool taking_in_ = false;                       // stopping for a newcomer
  bool again_ = false;                           // stopping to start again
  bool all_zero_ = true;                         // codes of this round
  bool examining_ = false;                       // in this round
  bool examined_ = false;                        // all that take part in the next one
  std::map<std::string, std::string> kept_out_;  // hosts, and why
  std::int64_t step_ = -1;                       // that this round has come to
  RestartProgress progress_;

  std::optional<TimePoint> enough_since_;  // elastic: MIN have been here
  TimePoint next_waiting_;
  TimePoint last_tick_, next_sweep_, leases_count_from_;
  std::vector<std::string> refusals_;

  std::vector<LeaderEvent> events_;
  std::vector<ConnectionId> lost_;
  std::string over_because_ = "the job is over";  // for those who come too late
};

}  // namespace dtrain::rendezvous
