// Who leads when a leader is lost: what candidates, voters and leaders ask and answer, and a leader's view of
// its voters. Knows no job. See docs/decisions/029-succession.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/net/endpoint.h"
#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

// Keys that are set at a leader's store, or a standby's.
inline constexpr std::string_view kVoteKey = "rdzv/vote";          ///< a VoteRequest; the answer a VoteAnswer
inline constexpr std::string_view kAnnouncementKey = "rdzv/lead";  ///< who leads, for one who may not know

inline constexpr std::size_t kMaxGrantBytes = 16;

/// A launcher that may be elected to lead.
struct Voter {
  std::uint64_t instance_id = 0;
  std::string host;  ///< for people
  Endpoint at;       ///< where it would lead
};
/// What a leader is asked: whom to follow, and whether the asker may lead.
struct VoteRequest {
  std::uint64_t term = 0;  ///< which the asker would lead; 0: it only asks who does
  std::uint64_t instance_id = 0;
  /// Of the newest events it has heard: the term, and how many of it.
  std::uint64_t known_term = 0, known_events = 0;
  bool probe = false;  ///< it would ask for this vote next: the answer promises nothing
};

struct VoteAnswer {
  bool granted = false;            ///< from now on no leader of a lower term is followed, except for a probe
  std::uint64_t instance_id = 0;   ///< who answers
  std::uint64_t current_term = 0;  ///< the highest term that has been granted or followed
  Duration heard_ago{};            ///< since the leader before last answered; with granted
  std::uint64_t leads = 0;         ///< the term that is followed; 0: none
  Endpoint leader;                 ///< and where, with leads
};

/// What an answer grants: the receiver may have workers for this long after it asked.
struct LeaseGrant {
  std::int64_t stamp = 0;  ///< the leader's time; the next heartbeat shows it
  Duration lasts = Duration::max();
};

/// What a heartbeat shows a leader: the newest of its stamps, and how many of its events have been heard.
/// Numbers of one term mean nothing in another: each leader counts its events from 0, by a clock of its own.
struct Ack {
  std::uint64_t term = 0;  ///< whose stamp and events these are
  std::int64_t stamp = 0;
  std::uint64_t match_index = 0;
};

struct LeaderAnnouncement {
  std::uint64_t term = 0;
  Endpoint leader;
};

std::string encode(const VoteRequest& request);
std::string encode(const VoteAnswer& answer);
std::string encode(const LeaseGrant& grant);
std::string encode(const Ack& ack);
std::string encode(const LeaderAnnouncement& announcement);
std::optional<VoteRequest> decode_vote_request(std::string_view bytes);
std::optional<VoteAnswer> decode_vote_answer(std::string_view bytes);
/// Of no bytes: a grant without limit, as where there is no succession.
std::optional<LeaseGrant> decode_grant(std::string_view bytes);
std::optional<Ack> decode_ack(std::string_view bytes);
std::optional<LeaderAnnouncement> decode_announcement(std::string_view bytes);

/// With its own vote, `candidate` has those of a majority of the voters.
bool elects(const std::vector<Voter>& voters, std::uint64_t candidate,
            const std::vector<VoteAnswer>& answers);

/// With fewer there is no majority that could outlive the leader.
inline constexpr std::size_t kLeastVoters = 3;
/// Voters beyond these would only cost messages.
inline constexpr std::size_t kMostVoters = 5;

/// A leader's view of the voters, itself included. It may lead as long as a majority has followed it within
/// the lease, and what it decides is final when a majority has heard of it. Voters change one at a time, and
/// not before the last change is final, so that two majorities always share a voter (Ongaro's thesis on
/// Raft, 4.1). Of two voters the leader alone is the majority: the other one cannot be elected. Pure.
class Voters {
 public:
  /// A successor's, whom nobody follows yet and whose first event tells of them. `members`: the
  /// leader first.
  Voters(std::uint64_t term, std::vector<Voter> members, Duration lease);
  /// A founder's: they have followed it until `founded`. `changed_at`: the number of events with the one that
  /// tells of them.
  Voters(std::uint64_t term, std::vector<Voter> members, Duration lease, TimePoint founded,
         std::uint64_t changed_at);

  /// A voter has shown an ack. One of another term, or of more events than the leader has `told`, is
  /// refused: it counts for nothing.
  void hear(std::uint64_t instance_id, const Ack& ack, std::uint64_t told);
  /// The leader may lead until then; TimePoint::max() while it alone is the majority. In the past for a
  /// successor whom no majority follows yet.
  TimePoint leads_until() const;
  /// A majority has heard `events` of the leader's events. The leader counts as the others do, by what its
  /// own session has heard: that, and not what it has told, is what it would know as a voter.
  bool decided(std::uint64_t events) const;
  /// Takes a voter in or leaves one out if that is due and possible, of those who are there; true when it
  /// has: then `events` is the number of events with the one that says so.
  /// Nobody is taken in or left out by whom the leader would not lead any more `now`.
  bool adapt(const std::vector<Voter>& present, std::uint64_t events, TimePoint now);

  const std::vector<Voter>& members() const noexcept { return members_; }
  /// How many events there were when they were changed last.
  std::uint64_t changed_at() const noexcept { return changed_at_; }
  /// The leader is the majority.
  bool alone() const noexcept { return alone_; }
  bool has_successors() const noexcept { return members_.size() >= kLeastVoters; }

 private:
  struct Seen {
    std::uint64_t instance_id = 0;
    std::optional<TimePoint> followed;
    std::uint64_t events = 0;
  };
  std::size_t majority() const noexcept { return members_.size() / 2 + 1; }
  const Seen* seen(std::uint64_t instance_id) const;
  void leave_out(std::uint64_t instance_id);

  std::uint64_t term_;
  std::vector<Voter> members_;
  std::vector<Seen> seen_;  // of all
  Duration lease_;
  std::uint64_t changed_at_ = 1;
  bool alone_ = false;  // the leader is the majority
};

}  // namespace dtrain::rendezvous
