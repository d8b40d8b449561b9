// Who leads, as one launcher takes part in it. Acquire: look for a leader, or become one. Renew: lead for as
// long as a majority follows. Publish: what a majority has heard outlives the leader. Watch: follow the
// leader. Knows no job; where leaders have no successors there is none of it.
// See docs/decisions/059-the-leadership-seam.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/quorum/announcer.h"
#include "cluster/quorum/voters.h"

namespace dtrain::rendezvous {

struct LeadershipOptions {
  std::uint64_t instance_id = 0;  ///< this launcher's; not 0
  std::string host;               ///< this launcher's machine, for people
  Duration lease = std::chrono::seconds(4);
  Endpoint meeting_point{};    ///< where newcomers look for the leader; port 0: none
  StoreClientOptions store{};  ///< to tell them
};

/// An election that this launcher has won.
struct Election {
  std::uint64_t term = 0;
  Duration heard_ago{};       ///< no voter has heard the former leader since
  std::vector<Voter> voters;  ///< that one first
};

/// What a launcher without a leader does next: tries to follow `leaders`, one after the other; in vain, asks
/// `others` for answers to `request`; without a request it looks again a little later.
struct Search {
  std::vector<Endpoint> leaders;
  std::optional<VoteRequest> request;
  std::vector<Endpoint> others;
  std::size_t votes = 0;            ///< that are enough to stop asking
  std::optional<Election> elected;  ///< this launcher leads from now on, and follows itself
};

/// Raft's current term and vote, and, where this launcher leads, its voters. A follower (one thread), a
/// leader (another one) and those who ask for votes share it: all calls are safe from any thread. `now` is of
/// the clock that runs while a machine sleeps.
class Leadership {
 public:
  explicit Leadership(LeadershipOptions options) : options_(std::move(options)) {}

  std::uint64_t instance_id() const noexcept { return options_.instance_id; }
  const std::string& host() const noexcept { return options_.host; }
  /// Where this launcher leads or would lead.
  void serve_at(const Endpoint& own);

  // --- watch: as a follower -------------------------------------------------------------------------------

  /// The next answers come from there.
  void approach(const Endpoint& server);
  /// Forgets what it has followed and heard: who admits it next may count from the same numbers.
  void forget();
  enum class Followed { refused, as_before, anew };
  /// A leader of that term has admitted this launcher, which may have promised itself to a later one.
  Followed follow(std::uint64_t term);
  /// Its lease, from this answer on, runs until `ends`. False: this launcher has voted for another leader.
  bool granted(const LeaseGrant& grant, TimePoint ends, TimePoint now);
  /// It follows a leader whom it has voted against since.
  bool deserted() const;
  /// It has heard so many events of whom it follows, and of these voters.
  void hear(std::uint64_t events, const std::vector<Voter>& voters);
  /// What the next heartbeat shows the leader, encoded; nothing where none has admitted it.
  std::string ack() const;
  /// The term of the newest events it has heard; 0: none.
  std::uint64_t known_term() const;
  /// How many voters there are in the newest set that it has heard of.
  std::size_t known_voters() const;
  /// The newest leader it knows; no port: none.
  Endpoint leader() const;
  /// It has been told who leads. True: it leads an earlier term itself, and must resign.
  bool superseded_by(const LeaderAnnouncement& announcement);

  // --- acquire --------------------------------------------------------------------------------------------

  /// The lease has run out. Those of the voters that hear each other elect one of them; everybody else asks
  /// them who it is. A candidate asks first whether it would be elected, so that nobody is bound to
  /// who will not lead.
  Search acquire(TimePoint now);
  /// What the others have answered to the last request.
  Search answered(const std::vector<VoteAnswer>& answers, TimePoint now);
  /// Answers a launcher that looks for a leader or would be one.
  VoteAnswer answer(const VoteRequest& request, TimePoint now);
  /// Leads as the first one, followed until now by `others`, who hear so with the events of that number.
  void found(const std::vector<Voter>& others, std::uint64_t events, TimePoint now);
  /// Leads from now on. False: it leads, or has led, a later term.
  bool lead(Election election, TimePoint now);
  /// The term that it leads or has led; 1 for the first one.
  std::uint64_t term() const;

  // --- renew: as the leader -------------------------------------------------------------------------------

  /// There are voters, and this one leads them.
  bool leads() const { return voters() != nullptr; }
  /// What it grants with an answer: nothing for longer than a majority stands behind it.
  LeaseGrant renew(TimePoint now);
  /// A follower has shown this ack(); `told`: how many events there are.
  void acknowledged(std::uint64_t instance_id, std::string_view ack, std::uint64_t told);
  /// A majority follows, or may still come to.
  bool holds(TimePoint now);
  /// Takes a voter in or leaves one out if that is due. `present`: who could be one, of the members first.
  /// True when it has: then `events` is the number of events with the one that says so.
  bool adapt(const std::function<std::vector<Voter>(const std::vector<Voter>& members)>& present,
             std::uint64_t events, TimePoint now);
  void resign();
  /// By which the leader's view of its voters is older than theirs of it: a successor waits so much longer.
  Duration slack() const noexcept;

  // --- publish --------------------------------------------------------------------------------------------

  /// A majority follows, and has heard so many of its events: any successor knows them.
  bool decided(std::uint64_t events) const;
  /// While it leads; changed on the leader's thread only. nullptr: it does not.
  const Voters* voters() const { return led_ ? &led_->voters : nullptr; }

 private:
  struct Led {
    Voters voters;
    bool established = false;  // a majority follows
    TimePoint establish_until{}, next_look{};
    std::unique_ptr<Announcer> announcer;
  };
  std::uint64_t voted_term() const { return std::max(current_term_, candidacy_); }
  bool loyal(TimePoint now, std::uint64_t asker) const { return now < loyal_until_ && asker != voted_for_; }
  bool better(std::uint64_t term) const { return term > followed_ && term >= voted_term(); }
  VoteRequest stand(TimePoint now, bool probe);
  bool settle(bool elected, TimePoint now);
  void announce(Led& led) const;

  const LeadershipOptions options_;
  mutable std::mutex mutex_;
  Endpoint own_;

  // Raft's promises.
  std::uint64_t current_term_ = 0;
  std::uint64_t candidacy_ = 0;  // the term for which it stands; 0: none
  std::uint64_t heard_of_ = 0;   // the highest term for which anybody has stood
  TimePoint loyal_until_{};      // follows a leader, or has just voted for one
  std::uint64_t voted_for_ = 0;  // who may ask again; 0: a leader is followed

  // What it follows.
  Endpoint server_;
  std::uint64_t followed_ = 0;  // its term
  std::int64_t stamp_ = 0;
  TimePoint heard_at_{};
  std::uint64_t known_term_ = 0, known_events_ = 0;
  std::vector<Voter> known_voters_;
  LeaderAnnouncement newest_;

  // Its search for a leader.
  std::optional<TimePoint> searching_since_;
  VoteRequest request_;          // the last one
  std::vector<Endpoint> asked_;  // and whom
  int attempts_ = 0;

  std::uint64_t term_ = 1;
  std::optional<Led> led_;
};

}  // namespace dtrain::rendezvous
