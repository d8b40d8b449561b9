// Who has a slot in a job, with which node_rank, and who is still missing. Checks newcomers against those
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
using ConnectionId = std::uint64_t;

struct Slot {
  ConnectionId id = 0;
  int place = 0;      ///< the launcher's own number, from 0: that of a node or, from nnodes on, of a spare
  int node_rank = 0;  ///< the node it is in the job; -1: it waits as a spare
  NodeOffer offer;
  TimePoint last_heard{};
  std::optional<TimePoint> lost_at;     ///< its lease runs out then at the latest, by its own word or ours
  std::optional<TimePoint> hung_up_at;  ///< its machine has closed the connection
  std::string accused;                  ///< why it is left behind, where it is not the network's fault
  bool broken = false;  ///< the connection failed; the node itself may be alive until its lease has run out
  bool begun_anew = false;  ///< it followed another leader, in no round that this one knows
  bool in_round = false;
  bool ready = false;
  std::optional<int> ended;  ///< the exit code of its part of the round
  bool signalled = false;
  std::uint64_t last_event = 0;  ///< number of the last one that was heard

  /// "node_rank 3 (host gpu003, 10.0.0.4)"; "spare 8 (…)" for one that waits.
  std::string text() const;
};

class SlotTable {
 public:
  /// `hosts` names the machines expected, by node_rank; it may be shorter than `max_nodes`. `spares` more
  /// launchers than `max_nodes` may wait.
  SlotTable(int min_nodes, int max_nodes, std::vector<std::string> hosts, int spares = 0);

  /// Why `offer` gets no slot; empty when it may have one. The first node ever admitted sets what must match.
  std::string objection(const NodeOffer& offer) const;
  /// Admits an offer without objections. Without a node_rank it gets the lowest free one; 0 is kept for the
  /// node that hosts the rendezvous. Where a spare has taken that node's part, it waits as a spare itself.
  /// O(log nodes) but for the search after somebody has left.
  Slot& add(ConnectionId id, const NodeOffer& offer, TimePoint now);
  /// The slot of a launcher that the leader before has admitted, to be claimed by it; counts as broken.
  void inherit(Slot slot);
  /// The inherited slot of that place, if it has not been claimed. O(1): all launchers of a job come at once.
  Slot* find_inherited(int place);
  void claim(Slot& slot, const NodeOffer& offer);
  void remove(ConnectionId id);
  /// Gives the node_ranks of missing nodes to standby launchers, in the order of their slots.
  void promote_spares();
  /// The slot of that launcher, also a broken one; nullptr when there is none (any more).
  Slot* find_instance_id(std::uint64_t instance_id);
  const Slot* find_instance_id(std::uint64_t instance_id) const;
  /// The slot continues over another connection, under its id; as a spare when its node_rank has been taken
  /// meanwhile. Its place must not have been.
  Slot& move(ConnectionId from, ConnectionId to);
  /// The connection is gone, the node perhaps not: its node_rank may be taken again, its slot stays.
  void mark_broken(ConnectionId id);

  Slot* find(ConnectionId id);
  std::map<ConnectionId, Slot>& slots() noexcept { return slots_; }
  const std::map<ConnectionId, Slot>& slots() const noexcept { return slots_; }
  /// Nodes whose connection is good; spares are not counted.
  std::size_t present() const noexcept { return by_rank_.size(); }
  /// Spares whose connection is good.
  std::size_t waiting() const noexcept { return by_place_.size() - by_rank_.size(); }
  bool has_place(int place) const { return by_place_.contains(place); }
  bool has_rank(int node_rank) const { return by_rank_.contains(node_rank); }
  /// Those present, in the order of node_rank, with the first rank of each.
  std::vector<RoundNode> nodes() const;
  /// Place and node_rank of those who are not the node of their own number: of all present, and of those
  /// absent whose node somebody else is, so that they know when they come back.
  std::vector<std::pair<int, int>> displaced() const;
  /// The slot of every present node_rank, in its order.
  const std::map<int, ConnectionId>& by_rank() const noexcept { return by_rank_; }

  /// "7/8 nodes; missing node_rank 5 (gpu005)"; at most ten ranges are listed.
  std::string count_text() const;
  /// "node_rank 5 (gpu005)", as far as the host is known.
  std::string expected_text(int node_rank) const;

 private:
  std::string rank_objection(const NodeOffer& offer) const;
  std::string mismatch(const NodeOffer& offer) const;
  int free_place();
  std::size_t places() const noexcept { return static_cast<std::size_t>(max_nodes_ + spares_); }

  int min_nodes_, max_nodes_, spares_;
  std::vector<std::string> hosts_;
  std::map<ConnectionId, Slot> slots_;
  std::map<int, ConnectionId> by_rank_, by_place_;
  std::unordered_map<std::uint64_t, ConnectionId> by_instance_id_;
  std::unordered_map<int, ConnectionId> inherited_;  // by place; not yet claimed
  bool some_unranked_ = false;
  int lowest_free_ = 1;
  std::optional<Slot> reference_;  // whose values must be matched
};

}  // namespace dtrain::rendezvous
