// What a stage of a pipeline has of a network, and what it shares with other stages: tied weights, of which
// each stage that uses them holds a copy. Their gradients are added up, so that all copies stay equal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/layout/parameter_layout.h"

namespace dtrain {

struct StageLayout {
  Communicator& stages;  ///< the ranks that hold the others; borrowed
  /// The records of parameters and buffers of this stage, by all names that they have, until NetworkLayout
  /// has taken them over.
  std::vector<ParameterLayout> parameters = {};
  std::size_t count = 0;  ///< of the whole network's parameters
};

/// What `stage` has of the network `whole`, in which tied parameters share memory. `stage_of` gives the stage
/// of a name.
std::vector<ParameterLayout> parameters_of_stage(const Module& whole,
                                                 const std::function<int(const std::string& name)>& stage_of,
                                                 int stage);

/// Collective among the `stages` of each tie in `layouts`. Adds up the gradients of the tied ones of
/// `parameters`, by this stage's names, in the order of the stages: the same bits on all of them. Where
/// stages pass ranges of them, these are the same. A stage that did not use its copy counts as zero; what
/// none used gets no gradient. Waits for the device.
void add_up_tied_gradients(const std::vector<ParameterLayout>& layouts, Communicator& stages,
                           const NamedTensors& parameters, const Deadline& deadline);

}  // namespace dtrain
