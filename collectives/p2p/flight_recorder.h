// The flight recorder of a rank: its last calls, which it publishes when it has waited long. Comparing two
// such records finds calls on which two ranks disagree.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/p2p/call.h"

namespace dtrain::p2p {

/// The most recent collectives of a rank and, while it is in them, its sends and receives.
class FlightRecorder {
 public:
  /// `call` begins on this rank.
  void record(const Call& call);
  /// Text for the out-of-band store; `rank` is this rank, which has looked around `looks` times in its call.
  std::string dump(int rank, std::uint64_t looks = 0) const;
  std::uint64_t latest_sequence() const noexcept {
    return collectives_.empty() ? 0 : collectives_.back().sequence;
  }

 private:
  std::deque<Call> collectives_;
  std::vector<Call> messages_;
};

/// One call of another rank, read from its record.
struct RecordedCall {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
  std::string text;
};

/// A send, receive, offer or receive_any of another rank, read from its record.
struct RecordedMessage : RecordedCall {
  int from = -1, to = -1;                             ///< -1: any rank
  std::optional<std::uint64_t> topic = std::nullopt;  ///< of an offer, or of what takes one
};

/// What a record says. Unreadable lines are skipped.
struct FlightRecord {
  std::vector<RecordedCall> collectives;     ///< oldest first
  std::vector<RecordedMessage> messages;     ///< what it is in, beside or after the collectives
  std::uint64_t looks = 0;                   ///< how often its rank had looked around in its call
  std::vector<std::size_t> sends, receives;  ///< counts by rank, where the latest collective is an all_to_all

  static FlightRecord parse(std::string_view text);
  /// The last call the rank has begun, for people; "nothing yet" when it made none.
  std::string latest() const;
  std::uint64_t latest_sequence() const noexcept {
    return collectives.empty() ? 0 : collectives.back().sequence;
  }
};

/// Whether they wait in a collective that needs a rank which has made `collectives` so far and is in none.
bool waits_for_later_collective(const FlightRecord& theirs, std::uint64_t collectives);

/// A call of rank `peer` (whose record is `theirs`) that disagrees with `mine`, which rank `rank` waits in
/// after `collectives` collectives.
std::optional<RecordedCall> find_disagreement(const Call& mine, int rank, std::uint64_t collectives,
                                              const FlightRecord& theirs, int peer);

}  // namespace dtrain::p2p
