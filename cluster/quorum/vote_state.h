// What one launcher has promised about leaders: Raft's current term and vote. Its session (which follows a
// leader) and its standby (which is asked for votes) share it, each on a thread of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "cluster/quorum/voters.h"

namespace dtrain::rendezvous {

class VoteState {
 public:
  /// Runs `use` of a session while no vote can be given, then notes what the session follows. A session that
  /// follows a leader whom this launcher has voted against is interrupted first.
  template <class Session, class Use>
  void with(Session& session, TimePoint now, const Use& use) {
    const std::lock_guard lock(mutex_);
    refuse_former(session);
    session.follow_none_below(current_term());
    use();
    refuse_former(session);
    note(session, now);
  }
  /// Where the session's leader is.
  void set_leader(const Endpoint& leader);

  /// Answers a launcher that looks for a leader or would be one.
  VoteAnswer answer(const VoteRequest& request, TimePoint now);
  /// This launcher would lead: the term for that, which it has not voted in, nor another of which it has
  /// heard. 0: it follows a leader, or has just voted for another one. A probe promises nothing; else it has
  /// voted for itself.
  VoteRequest stand(std::uint64_t instance_id, TimePoint now, bool probe);
  /// The vote that it stood for is over; true when it leads now. Not elected, it leads nobody by its vote for
  /// itself, which binds nobody. Nor does it lead where it has voted for a later term meanwhile: its own
  /// vote would count for both.
  bool settle(bool elected, TimePoint now);
  /// A leader of that term may be followed.
  bool may_follow(std::uint64_t term) const;
  /// Another launcher has promised itself to that term.
  void hear_of(std::uint64_t term);
  /// This launcher leads and has granted somebody a lease: as good as heard, by a session of its own that may
  /// be cut off.
  void granted(TimePoint now);
  /// Since this launcher has heard the leader before.
  Duration heard_ago(TimePoint now) const;
  /// How many voters there are in the newest set that it has heard of.
  std::size_t voters() const;
  /// It has been told who leads.
  void hear(const LeaderAnnouncement& announcement);
  /// The newest leader it knows; term 0: none.
  LeaderAnnouncement leader() const;

 private:
  std::uint64_t current_term() const { return std::max(current_term_, candidacy_); }
  template <class Session>
  void refuse_former(Session& session) const;
  template <class Session>
  void note(const Session& session, TimePoint now);
  bool loyal(TimePoint now, std::uint64_t asker) const { return now < loyal_until_ && asker != voted_for_; }

  mutable std::mutex mutex_;
  std::uint64_t current_term_ = 0;
  std::uint64_t candidacy_ = 0;  // the term for which it stands; 0: none
  std::uint64_t heard_of_ = 0;   // the highest term for which anybody has stood
  TimePoint loyal_until_{};      // follows a leader, or has just voted for one
  std::uint64_t voted_for_ = 0;  // who may ask again; 0: a leader is followed
  TimePoint heard_at_{};         // the leader, by its session
  std::uint64_t known_term_ = 0, known_events_ = 0;
  std::size_t voters_ = 0;
  Endpoint server_;  // of the session
  LeaderAnnouncement leader_;
};

template <class Session>
void VoteState::refuse_former(Session& session) const {
  if (session.joining() || session.ended()) return;
  if (session.term() != 0 && session.term() < current_term())
    session.interrupt("this launcher has voted for another leader");
}

template <class Session>
void VoteState::note(const Session& session, TimePoint now) {
  heard_at_ = std::max(heard_at_, session.heard_at());
  known_term_ = session.known().term;
  known_events_ = session.known().events;
  voters_ = session.known().leadership.voters.size();
  if (session.joining() || session.interrupted() || session.ended() || session.term() < current_term())
    return;
  current_term_ = session.term();
  if (session.lease_ends() <= now) return;
  loyal_until_ = std::max(loyal_until_, session.lease_ends());
  voted_for_ = 0;
  if (session.term() != 0) leader_ = {session.term(), server_};
}

}  // namespace dtrain::rendezvous
