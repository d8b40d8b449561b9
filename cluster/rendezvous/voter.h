// What one launcher has promised about leaders. Its member (which follows one) and its standby (which is
// asked for votes) share it, each on a thread of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "cluster/rendezvous/session.h"
#include "cluster/rendezvous/succession.h"

namespace dtrain::rendezvous {

class Voter {
 public:
  /// Runs `use` of a session while no vote can be given, then notes what the session follows. A session that
  /// follows a leader whom this launcher has voted against is interrupted first.
  template <class Use>
  void with(Session& session, TimePoint now, const Use& use) {
    const std::lock_guard lock(mutex_);
    refuse_former(session);
    session.follow_none_below(promised());
    use();
    refuse_former(session);
    note(session, now);
  }
  /// Where the session's leader is.
  void set_leader(const Endpoint& leader);

  /// Answers a launcher that looks for a leader or would be one.
  VoteAnswer answer(const VoteRequest& request, TimePoint now);
  /// This launcher would lead: the epoch for that, which it has not voted in, nor another of which it has
  /// heard. 0: it follows a leader, or has just voted for another one. A probe promises nothing; else it has
  /// voted for itself.
  VoteRequest stand(std::uint64_t incarnation, TimePoint now, bool probe);
  /// The vote that it stood for is over; true when it leads now. Not elected, it leads nobody by its vote for
  /// itself, which binds nobody. Nor does it lead where it has voted for a later epoch meanwhile: its own
  /// vote would count for both.
  bool settle(bool elected, TimePoint now);
  /// A leader of that epoch may be followed.
  bool may_follow(std::uint64_t epoch) const;
  /// Another launcher has promised itself to that epoch.
  void hear_of(std::uint64_t epoch);
  /// Since this launcher has heard the leader before.
  Duration heard_ago(TimePoint now) const;
  /// How many delegates the newest council has that it has heard of.
  std::size_t council() const;
  /// It has been told who leads.
  void hear(const Claim& claim);
  /// The newest leader it knows; epoch 0: none.
  Claim leader() const;

 private:
  std::uint64_t promised() const { return std::max(promised_, candidacy_); }
  void refuse_former(Session& session) const;
  void note(const Session& session, TimePoint now);
  bool loyal(TimePoint now, std::uint64_t asker) const { return now < loyal_until_ && asker != voted_for_; }

  mutable std::mutex mutex_;
  std::uint64_t promised_ = 0;
  std::uint64_t candidacy_ = 0;  // the epoch for which it stands; 0: none
  std::uint64_t heard_of_ = 0;   // the highest epoch for which anybody has stood
  TimePoint loyal_until_{};      // follows a leader, or has just voted for one
  std::uint64_t voted_for_ = 0;  // who may ask again; 0: a leader is followed
  TimePoint heard_at_{};         // the leader, by its session
  std::uint64_t known_epoch_ = 0, known_events_ = 0;
  std::size_t council_ = 0;
  Endpoint server_;  // of the session
  Claim leader_;
};

}  // namespace dtrain::rendezvous
