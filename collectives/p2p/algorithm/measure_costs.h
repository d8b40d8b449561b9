// What a group's links cost, measured in a few milliseconds between one pair of ranks on a host and one on
// two hosts.
#pragma once

#include "collectives/p2p/algorithm/collective_plan.h"
#include "collectives/p2p/algorithm/context.h"

namespace dtrain::p2p {

/// Collective; the same on all ranks, with the slowest rank's time of adding. Where there is no pair of a
/// kind, the default. Throws as a call would.
GroupCosts measure_costs(const AlgorithmContext& context, const Topology& topology);

}  // namespace dtrain::p2p
