// Which way a group's collectives take: by what was asked for, by which ranks share a host, and by a model of
// what the links cost. Every rank has the same plan, so all choose alike.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/all_reduce_algorithm.h"
#include "collectives/p2p/algorithm/topology.h"

namespace dtrain::p2p {

/// Of messages between two ranks, in seconds.
struct LinkCosts {
  double latency = 0;  ///< until one has arrived
  double message = 0;  ///< that one more at the same time takes
  double byte = 0;     ///< that each of its bytes takes
};

/// What a collective of a group is made of, in seconds.
struct GroupCosts {
  LinkCosts within{1e-6, 0.3e-6, 1.0 / 6e9};    ///< a host
  LinkCosts between{40e-6, 5e-6, 1.0 / 1.1e9};  ///< hosts; a host's ranks share its link
  double reduced_byte = 1.0 / 8e9;              ///< adding up two contributions
};

/// How an all_reduce can be done; TwoLevel has the last two.
enum class Route { direct, ring, tree, two_levels, first_ranks };
inline constexpr Route kRoutes[] = {Route::direct, Route::ring, Route::tree, Route::two_levels,
                                    Route::first_ranks};
AllReduceAlgorithm algorithm_of(Route route) noexcept;

class CollectivePlan {
 public:
  /// `asked` may be what these hosts cannot use: hierarchical is direct where levels would be the same.
  /// `segment_bytes`: the least of all ranks' transports.
  CollectivePlan(Topology topology, AllReduceAlgorithm asked, const GroupCosts& costs,
                 std::size_t segment_bytes)
      : topology_(std::move(topology)), asked_(asked), costs_(costs), segment_bytes_(segment_bytes) {}

  const Topology& topology() const noexcept { return topology_; }
  const GroupCosts& costs() const noexcept { return costs_; }
  AllReduceAlgorithm asked() const noexcept { return asked_; }
  std::size_t segment_bytes() const noexcept { return segment_bytes_; }

  /// The route of an all_reduce of `bytes`.
  Route all_reduce_route(std::size_t bytes) const noexcept;
  /// Whether the other collectives take two levels.
  bool has_levels() const noexcept;
  /// What an all_reduce of `bytes` is expected to take, in seconds.
  double predict(Route route, std::size_t bytes) const noexcept;
  /// "auto on 2 hosts x 4 ranks: hierarchical", "auto on 1 host x 4 ranks: direct"; by sizes where they
  /// differ
  std::string text() const;

 private:
  const Topology topology_;
  const AllReduceAlgorithm asked_;
  const GroupCosts costs_;
  const std::size_t segment_bytes_;
};

/// Whether a direct all_reduce of `bytes` among `size` ranks takes one step, everything to everyone, which is
/// then quicker than two.
bool direct_in_one_step(int size, std::size_t bytes) noexcept;

}  // namespace dtrain::p2p
