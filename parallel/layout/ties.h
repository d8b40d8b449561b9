// Tied weights whose layers are in different stages of a pipeline: each stage holds a copy, whose gradients
// are added up, so that all copies stay equal.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// A parameter of this stage that others hold too.
struct Tie {
  std::string own;          ///< its name in this stage
  std::string first;        ///< the name by which the whole network counts it: the first of its names
  std::vector<int> stages;  ///< that hold it, in order
  int first_stage = 0;      ///< that has the first name
};

/// One stage's.
class Ties {
 public:
  Ties() = default;
  /// Of the network `whole`, in which tied parameters share memory. `stage_of` gives the stage of a name.
  Ties(const Module& whole, const std::function<int(const std::string& name)>& stage_of, int stage);

  /// Whether another stage counts and saves `name`, a parameter or state that is named after one
  /// ("head.weight.exp_avg").
  bool is_copy(const std::string& name) const;
  /// The name that this stage's copy has of what was saved as `name`; nothing where it has none.
  std::optional<std::string> copy_of(const std::string& name) const;

  /// Collective among the stages of each tie, which are ranks of `stages`. Adds up the gradients of the tied
  /// ones of `parameters`, by this stage's names, in the order of the stages: the same bits on all of them.
  /// Where stages pass ranges of them, these are the same. A stage that did not use its copy counts as zero;
  /// what none used gets no gradient. Waits for the device.
  void add_up_gradients(const NamedTensors& parameters, Communicator& stages, const Deadline& deadline) const;

 private:
  void add_up(const Tie& tie, Tensor parameter, Communicator& stages, const Deadline& deadline) const;

  std::vector<Tie> ties_;
  int stage_ = 0;
};

}  // namespace dtrain
