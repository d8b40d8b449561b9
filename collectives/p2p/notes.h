// What a rank that has waited long tells the others: the last calls it made. Comparing two such notes finds
// calls on which two ranks disagree.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/p2p/call.h"

namespace dtrain::p2p {

/// The most recent collectives of a rank and, while it is in one, its send or receive.
class Notes {
 public:
  /// `call` begins on this rank.
  void begin(const Call& call);
  /// Text for the board; `rank` is this rank.
  std::string text(int rank) const;
  std::uint64_t latest_sequence() const noexcept {
    return collectives_.empty() ? 0 : collectives_.back().sequence;
  }

 private:
  std::deque<Call> collectives_;
  std::optional<Call> pairwise_;
};

/// One call of another rank, read from its note.
struct SeenCall {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
  std::string text;
};

/// What a note says. Unreadable lines are skipped.
struct SeenNotes {
  std::vector<SeenCall> collectives;  ///< oldest first
  std::optional<SeenCall> pairwise;
  int from = -1, to = -1;  ///< ends of `pairwise`

  static SeenNotes parse(std::string_view text);
  /// The last call the rank has begun, for people; "nothing yet" when it made none.
  std::string latest() const;
  std::uint64_t latest_sequence() const noexcept {
    return collectives.empty() ? 0 : collectives.back().sequence;
  }
};

/// A call of rank `peer` (whose note is `theirs`) that disagrees with `mine`, which rank `rank` waits in
/// after `collectives` collectives.
std::optional<SeenCall> find_disagreement(const Call& mine, int rank, std::uint64_t collectives,
                                          const SeenNotes& theirs, int peer);

}  // namespace dtrain::p2p
