// What one launcher has promised about leaders. Its member (which follows one) and its standby (which is
// asked for votes) share it, each on a thread of its own.
#pragma once

#include <cstdint>
#include <mutex>

#include "cluster/rendezvous/session.h"
#include "cluster/rendezvous/succession.h"

namespace dtrain::rendezvous {

class Voter {
 public:
  /// Runs `use` of a session while no vote can be given, then notes what the session follows. A session that
  /// follows a leader whom this launcher has voted against is interrupted first. Returns what `use` does.
  template <class Use>
  void with(Session& session, TimePoint now, const Use& use) {
    const std::lock_guard lock(mutex_);
    refuse_former(session);
    use();
    refuse_former(session);
    note(session, now);
  }
  /// Where the session's leader is.
  void set_leader(const Endpoint& leader);

  /// Answers a launcher that looks for a leader or would be one.
  VoteAnswer answer(const VoteRequest& request, TimePoint now);
  /// This launcher would lead: the epoch for that, which it has not voted in. 0: it follows a leader.
  VoteRequest stand(std::uint64_t incarnation, TimePoint now);
  /// Since this launcher has heard the leader before.
  Duration heard_ago(TimePoint now) const;
  /// It has been told who leads.
  void hear(const Claim& claim);
  /// The newest leader it knows; epoch 0: none.
  Claim leader() const;

 private:
  void refuse_former(Session& session) const;
  void note(const Session& session, TimePoint now);
  bool loyal(TimePoint now) const { return now < loyal_until_; }

  mutable std::mutex mutex_;
  std::uint64_t promised_ = 0;
  TimePoint loyal_until_{};  // follows a leader, or has just voted for one
  TimePoint heard_at_{};     // the leader, by its session
  std::uint64_t follows_ = 0;
  std::uint64_t known_epoch_ = 0, known_events_ = 0;
  Endpoint server_;  // of the session
  Claim leader_;
};

}  // namespace dtrain::rendezvous
