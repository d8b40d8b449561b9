// How the ranks that hold copies of a stage share its gradients and its update: whole on each of them, or in
// ranges of which each has one (ZeRO). The pipeline says when forward and backward run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "parallel/schedule/stage_module.h"
#include "parallel/strategy.h"
#include "parallel/sync/reducer.h"
#include "parallel/sync/sharded/sharded_parameters.h"

namespace dtrain {

/// One micro-batch's backward through a chunk of the stage.
struct StageBackward {
  std::size_t chunk = 0;
  bool is_last = false;   ///< of the step: the chunk's gradients are final behind it
  bool exchange = false;  ///< in this step
};

/// One rank's. Used by one thread; the copies of a stage call it alike. Borrows the stage.
class StageSharing {
 public:
  virtual ~StageSharing() = default;

  /// What this rank's optimizer is to have.
  virtual NamedTensors updated() const = 0;
  /// The tensors whose grad() is a shared gradient after finish(): whole parameters that learn, or owned
  /// ranges of them.
  virtual NamedTensors parameters() const = 0;
  /// The ranks that have the other ranges; null where gradients are whole.
  virtual Communicator* ranges() noexcept = 0;

  /// Collective. Copies become equal; from now on gradients are shared.
  virtual void begin(const Deadline& deadline) = 0;
  virtual void begin_step() = 0;
  /// What the stage is used for next.
  virtual void begin_use(ParameterUse use) = 0;
  /// Once per forward in training, with the micro-batch and how many there are.
  virtual void after_forward(std::size_t micro_batch, std::size_t count) = 0;
  /// What a micro-batch's loss is divided by before its backward: 1 where gradients are averaged over the
  /// copies.
  virtual double loss_divisor() const noexcept = 0;
  /// Runs `body`, which is that backward.
  virtual void run_backward(const StageBackward& which, const std::function<void()>& body) = 0;
  /// Once per backward, when its input's gradient is on its way. Waits for the copies where the gradients of
  /// each micro-batch go to their owners.
  virtual void after_backward(const StageBackward& which) = 0;
  /// After the last backward of a step that exchanges: parameters() have their gradients.
  virtual void finish(const Deadline& deadline) = 0;
  /// After the update of updated(): the stage has the new values.
  virtual void take_update(const Deadline& deadline) = 0;
  /// After a step that does not exchange.
  virtual void drop_step() = 0;
  /// Collective. Makes running statistics those of the first copy.
  virtual void settle(const Deadline& deadline) = 0;

  /// Reads what this rank holds of the stage.
  virtual void load_model(const TensorFiles& files) = 0;
  /// What the optimizer takes over of `files`, of what has a name here.
  virtual NamedTensors load_state(const TensorFiles& files, const NameHere& name_here) const = 0;
  /// What this rank writes of the stage and of the optimizer's `state`.
  virtual StateParts save(const NamedTensors& state) const = 0;
  /// What copies hold alike; `state` is the optimizer's.
  virtual Replicas replicas(const NamedTensors& state) const = 0;
  /// The traffic of a step, for measuring.
  virtual void exchange_alone(const Deadline& deadline) = 0;
};

/// Of the copies of a stage each writes some: the n-th of `tensors` is the n-th one's.
std::vector<SavedPart> written_here(const NamedTensors& tensors, const Communicator& copies);

/// Every copy has all gradients. With `deal` each of them has the optimizer's state of some parameters
/// (DealtParameters). `copies` is borrowed.
std::unique_ptr<StageSharing> share_whole(StageModule& stage, Communicator& copies, ReducerOptions reducer,
                                          bool deal);
/// The same where a batch is cut into `parts`, of which each copy has some as its micro-batches: their
/// gradients are added up along one tree, whoever computed them (PartGradients). For stages of one chunk.
/// Sums are formed on `device`.
std::unique_ptr<StageSharing> share_parts(StageModule& stage, Communicator& copies,
                                          std::shared_ptr<Device> device, int parts, bool deal);
/// A stage all of whose parameters are frozen: copies share nothing. `parts` as above; 0: micro-batches are
/// passes.
std::unique_ptr<StageSharing> share_frozen(StageModule& stage, Communicator& copies, int parts);
/// Every copy has the gradients, or gradients and parameters, of a range of each parameter. `slices` as
/// TrainingParts::slices gives them.
std::unique_ptr<StageSharing> share_ranges(StageModule& stage, std::size_t chunks, Communicator& copies,
                                           const ShardOptions& options,
                                           const std::map<std::string, TensorPart>& slices);

}  // namespace dtrain
