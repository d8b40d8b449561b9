// The cost model of all_reduce (Hockney's: decision 068) fitted to what was measured, kept in a file, and
// applied to jobs that nobody has started.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/p2p/algorithm/collective_plan.h"

namespace dtrain {

/// An all_reduce of so many bytes took so long.
struct TimedReduction {
  std::size_t bytes = 0;
  double seconds = 0;
};

struct LinkFit {
  p2p::LinkCosts costs;
  double error = 0;  ///< the largest of a size: |predicted / measured - 1|
};

/// The latency and the time of a byte with which direct all_reduces among `ranks`, joined by links of one
/// kind, come closest to what was measured, each size counting alike; the cost of a message is the model's.
/// `measured` has two sizes or more: UsageError otherwise.
LinkFit fit_link(int ranks, std::span<const TimedReduction> measured);

/// Of which ranks the links are.
enum class LinkKind { within, between };

/// As a file has it: {"link":"between hosts",…}.
std::string link_json(LinkKind kind, int ranks, const LinkFit& fit);
/// Takes the costs of the file at `path` over into `costs`. Throws DataError naming the path, the field, what
/// was expected and found.
void read_link(const std::filesystem::path& path, p2p::GroupCosts& costs);

/// What an all_reduce of a job is expected to take.
struct PredictedReduction {
  int nodes = 1, workers = 1;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::direct;
  double seconds = 0;
};
/// Of `bytes` on `nodes` of `workers_per_node` each, by the algorithm that `auto` chooses there.
PredictedReduction predict_all_reduce(int nodes, int workers_per_node, std::size_t bytes,
                                      const p2p::GroupCosts& costs);

}  // namespace dtrain
