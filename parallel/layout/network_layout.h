// Which ranks hold what of a network besides this one: copies of the same, other slices of the same layers,
// other stages, other ranges of the same parameters. Saving, loading and limiting gradients are written once,
// from this.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/layout/parameter_layout.h"
#include "parallel/layout/stage_layout.h"
#include "runtime/nn/module.h"
#include "runtime/optim/clip.h"

namespace dtrain {

/// The other ranks; borrowed.
struct LayoutGroups {
  Communicator& dp_group;                   ///< that hold the same
  Communicator* shard_group = nullptr;      ///< that update other ranges of each parameter; null: none
  Communicator* replicate_group = nullptr;  ///< that update the same ranges (hybrid sharding); null: none
  Communicator* tp_group = nullptr;         ///< that hold other slices of the same layers; null: none
  Communicator* stages =
      nullptr;  ///< that hold other stages; null: the whole network is here, but for slices
  bool is_state_partitioned = false;  ///< of the optimizer's state each copy has that of some parameters
};

/// Collective. Reads every rank's share of `files` and throws on all of them where a checksum is wrong on
/// one: there DataError, on the others Error.
void check_values_together(const TensorFiles& files, Communicator& communicator, const Deadline& deadline);

/// One rank's, and the owner of its records.
class NetworkLayout {
 public:
  /// `network` is this rank's; `stage`: what a stage has of it, which is taken over, null where it is no
  /// stage; `slices`: what of the unsplit network's parameters those in it are, by name; the others are
  /// whole.
  NetworkLayout(const LayoutGroups& groups, const Module& network, StageLayout* stage,
                const std::map<std::string, TensorShard>& slices);

  /// The records of what the network has, by all names. A sync that cuts parameters writes there what of them
  /// is this rank's (SharedNetwork).
  std::vector<ParameterLayout>& parameters() noexcept { return parameters_; }

  /// What the network takes over of `files`.
  NamedTensors read_model(const TensorFiles& files, const std::shared_ptr<Device>& device) const;
  /// Reads into the network what it takes over of `files`: where a parameter is away, this rank's range of
  /// it.
  void read_ranges(const TensorFiles& files) const;
  /// What an optimizer of `updated` takes over of `files`.
  NamedTensors read_optimizer(const TensorFiles& files, const NamedTensors& updated,
                              const std::shared_ptr<Device>& device) const;
  /// By which name an optimizer of `updated` has what was saved as `saved`.
  std::optional<std::string> state_here(const std::string& saved, const NamedTensors& updated) const;
  /// What a gradient sync takes over of `files`.
  NamedTensors read_sync_state(const TensorFiles& files, const std::shared_ptr<Device>& device) const;

  /// Of the network's `tensors` what this rank writes: of what several ranks hold one does.
  std::vector<NamedShard> written(const NamedTensors& tensors) const { return written(tensors, false); }
  /// The same of an optimizer's `state`. Other stages save that of tied weights.
  std::vector<NamedShard> written_state(NamedTensors state) const;
  /// The same of what a gradient sync keeps, by the names that named_for_saving() gives.
  std::vector<NamedShard> written_sync_state(const NamedTensors& state) const;
  /// Where ranks update ranges: what this one writes of the network and of `state`, the optimizer's and a
  /// sync's. Of copies of ranges the first do; what is whole everywhere the first rank does.
  RankState written_ranges(NamedTensors state) const;

  /// Collective among stages: adds up the gradients that stages have of the tied ones of `parameters`.
  void add_up_ties(const NamedTensors& parameters, const Deadline& deadline) const {
    if (groups_.stages != nullptr) add_up_tied_gradients(parameters_, *groups_.stages, parameters, deadline);
  }
  /// Without state of tied weights that other stages save.
  NamedTensors counted_here(NamedTensors state) const;

  /// Collective where several ranks have gradients of their own. Limits the gradients of `parameters`: the
  /// norm is that of the whole network's, with the bits that one process gets where no parameter is cut.
  void limit(const NamedTensors& parameters, const GradientLimits& limits, const Deadline& deadline) const;

 private:
  /// Whether all of the network is on each rank.
  bool is_whole() const noexcept { return groups_.tp_group == nullptr && groups_.stages == nullptr; }
  bool is_first_slice() const noexcept {
    return groups_.tp_group == nullptr || groups_.tp_group->rank() == 0;
  }
  bool is_written_here(std::size_t index) const noexcept;
  bool is_slice(const std::string& name) const;
  /// Whether another stage counts and saves `name`, a parameter or its state.
  bool is_copy(const std::string& name) const;
  /// Whether `name`, a parameter or its state, is frozen where ranks have ranges.
  bool is_frozen_range(const std::string& name) const;
  /// The name that this stage's copy has of what another one saved as `saved`; else that.
  std::string name_of_copy(const std::string& saved) const;
  std::vector<NamedShard> written(const NamedTensors& tensors, bool is_partitioned) const;
  Tensor norms(const NamedTensors& parameters) const;

  LayoutGroups groups_;
  std::vector<ParameterLayout> parameters_;  ///< and buffers, by all names that they have
  std::size_t count_;                        ///< of the whole network's parameters
};

}  // namespace dtrain
