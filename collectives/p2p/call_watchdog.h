// Watches over one call while it waits: deadline, abort, lost peers, and, once it has waited long, whether
// the other ranks are in the same call.
#pragma once

#include <atomic>
#include <functional>
#include <map>

#include "collectives/p2p/flight_recorder.h"
#include "collectives/p2p/peer_failure.h"
#include "collectives/p2p/transport.h"

namespace dtrain::p2p {

/// Thrown by a CallWatchdog: the group is to end for this reason.
struct GroupEnds {
  PeerFailure failure;
};

class CallWatchdog final : public Watchdog {
 public:
  struct Sources {
    Members& members;
    OobKv& oob;
    const FlightRecorder& recorder;
    std::function<bool()> out_of_time;                    ///< somebody's deadline for this group has passed
    std::function<std::optional<std::string>()> aborted;  ///< the reason, once abort() was called
  };

  /// `call` must outlive the watchdog; it is given up `timeout` from now.
  CallWatchdog(const Sources& sources, const Call& call, Duration timeout);

  void tick() override;

  /// Why the group ends when a link broke: the published failure, else the lost rank.
  PeerFailure failure_of(const LinkLost& lost);
  /// Why the group ends when `happened` says that it broke but not through whom: the published
  /// failure, else the ranks whose records do not show them in this call or whose processes have ended.
  PeerFailure accuse(const std::string& happened);
  /// A failure of this call that blames `rank` (-1: no rank in particular).
  PeerFailure blame(int rank, std::string what) const;

 private:
  /// A disagreement that was seen once, and how often its rank had looked around then.
  struct Suspicion {
    std::string text;
    std::uint64_t looks;
  };

  void look_around(TimePoint now);
  std::optional<FlightRecord> compare_with(int peer);
  /// Whether the disagreement with a call of `peer` that `record` tells of can be believed.
  bool is_certain(int peer, const RecordedCall& theirs, const FlightRecord& record);
  void compare_with_involved();
  [[noreturn]] void throw_disagreement(int peer, const RecordedCall& theirs) const;
  PeerFailure late(TimePoint now);
  std::string name_rank(int rank) const;

  const Sources& sources_;
  const Call& call_;
  TimePoint start_;
  Deadline deadline_;
  TimePoint next_look_;
  std::uint64_t looks_ = 0;
  int looked_at_ = 0;                    // how far after this rank on the ring
  std::map<int, RecordedCall> stuck_{};  // in collectives after this call, by rank
  bool nobody_left_ = false;             // all others were stuck when this rank looked last
  std::map<int, Suspicion> suspicions_{};
};

}  // namespace dtrain::p2p
