// Who has a seat in a job, with which node_rank, and who is still missing. Checks newcomers against those
// who are there; knows nothing of rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/rendezvous/protocol.h"

namespace dtrain::rendezvous {

/// A launcher's connection, numbered by the carrier of the messages.
using SeatId = std::uint64_t;

struct Seat {
  SeatId id = 0;
  int node_rank = 0;
  NodeOffer offer;
  TimePoint last_heard{};
  std::optional<TimePoint> lost_at;  ///< its lease runs out then at the latest, by its own word or ours
  std::string accused;               ///< why it is left behind, where it is not the network's fault
  bool broken = false;  ///< the connection failed; the node itself may be alive until its lease has run out
  bool in_round = false;
  bool ready = false;
  std::optional<int> ended;  ///< the exit code of its part of the round
  bool signalled = false;
  std::uint64_t last_word = 0;  ///< number of the last one that was heard

  /// "node_rank 3 (host gpu003, 10.0.0.4)"
  std::string text() const;
};

class Roster {
 public:
  /// `hosts` names the machines expected, by node_rank; it may be shorter than `max_nodes`.
  Roster(int min_nodes, int max_nodes, std::vector<std::string> hosts);

  /// Why `offer` cannot be seated; empty when it can. The first node ever seated sets what must match.
  std::string objection(const NodeOffer& offer) const;
  /// Seats an offer without objections. Without a node_rank it gets the lowest free one; 0 is kept for the
  /// node that hosts the rendezvous. O(log nodes) but for the search after somebody has left.
  Seat& add(SeatId id, const NodeOffer& offer, TimePoint now);
  void remove(SeatId id);
  /// The seat of that launcher, also a broken one; nullptr when there is none (any more).
  Seat* find_incarnation(std::uint64_t incarnation);
  /// The seat goes on over another connection, under its id. Its node_rank must not have been taken
  /// meanwhile.
  Seat& move(SeatId from, SeatId to);
  /// The connection is gone, the node perhaps not: its node_rank may be taken again, its seat stays.
  void mark_broken(SeatId id);

  Seat* find(SeatId id);
  std::map<SeatId, Seat>& seats() noexcept { return seats_; }
  const std::map<SeatId, Seat>& seats() const noexcept { return seats_; }
  /// Seats whose connection is good.
  std::size_t present() const noexcept { return by_rank_.size(); }
  bool has_rank(int node_rank) const { return by_rank_.contains(node_rank); }
  /// Those present, in the order of node_rank, with the first rank of each.
  std::vector<RoundNode> nodes() const;
  /// The seat of every present node_rank, in its order.
  const std::map<int, SeatId>& by_rank() const noexcept { return by_rank_; }

  /// "7/8 nodes; missing node_rank 5 (gpu005)"; at most ten ranges are listed.
  std::string count_text() const;
  /// "node_rank 5 (gpu005)", as far as the host is known.
  std::string expected_text(int node_rank) const;

 private:
  std::string rank_objection(const NodeOffer& offer) const;
  std::string mismatch(const NodeOffer& offer) const;
  int free_rank();

  int min_nodes_, max_nodes_;
  std::vector<std::string> hosts_;
  std::map<SeatId, Seat> seats_;
  std::map<int, SeatId> by_rank_;
  std::unordered_map<std::uint64_t, SeatId> by_incarnation_;
  bool some_unranked_ = false;
  int lowest_free_ = 1;
  std::optional<Seat> reference_;  // whose values must be matched
};

}  // namespace dtrain::rendezvous
