// The seam between what is learned and how: a task builds the network, turns a batch into a loss, and says
// what evaluation adds up. Everything else — flags, sampling, strategies, checkpoints, resuming, traces,
// graphs — is the library's.
//
//     class Squares final : public dtrain::Task {
//      public:
//       std::string name() const override { return "squares"; }
//       std::unique_ptr<dtrain::Module> build(std::span<const dtrain::Field> fields, dtrain::Generator&
//       generator,
//                                             const std::shared_ptr<dtrain::Device>& device) const override {
//         return std::make_unique<dtrain::Linear>(fields[0].shape[0], 1, generator, device);
//       }
//       dtrain::Tensor loss(const dtrain::Tensors& outputs, const dtrain::BatchTensors& batch) const override
//       {
//         return dtrain::mse_loss(outputs[0], batch["y"]);
//       }
//     };
//     int main(int argc, char** argv) { return dtrain::train_main(argc, argv, Squares()); }
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/tensor/tensor_parallel_group.h"
#include "runtime/base/clock.h"
#include "runtime/data/sources/open_source.h"
#include "runtime/nn/module.h"
#include "runtime/optim/lr_schedule.h"
#include "training/batch_tensors.h"
#include "training/confusion.h"
#include "training/options/named_groups.h"
#include "training/phase.h"
#include "training/published_format.h"

namespace dtrain {

/// What an evaluation found, over all samples of a source; the same on every rank.
struct Evaluation {
  double loss = 0;                                      ///< mean over the units
  std::vector<std::pair<std::string, double>> metrics;  ///< "accuracy", …: in the task's order
  std::int64_t samples = 0;
  std::optional<Confusion> confusion = {};  ///< of a classifier (Task::predicted_field)

  /// The metric of that name. Throws UsageError, listing those there are, when it is none of them.
  double operator[](std::string_view metric) const;
};

/// What a run's samples are, as the user named them.
struct DataRequest {
  std::string dataset;                            ///< the text of --dataset
  std::string data_dir;                           ///< folder of its files; empty: where they are by default
  Log* log = nullptr;                             ///< borrowed as long as the sources live; null: silent
  Augmentation augment = {};                      ///< of pictures in files, in training
  OnBadSample on_bad_sample = OnBadSample::stop;  ///< of pictures in files
  std::size_t picture_cache_bytes = 0;            ///< of pictures in files (OpenSourceOptions)
};

/// What learning from one sample costs, by a count that others use, so that speeds can be compared.
struct TrainingCost {
  std::int64_t tokens = 0;  ///< that the network is fed
  double flops = 0;         ///< floating-point operations, forward and backward, without what is recomputed
  std::string formula;      ///< of flops
};

/// What a network's first output is.
enum class OutputKind {
  values,  ///< what it predicts, as it is
  logits,  ///< a number for each class, along the last dimension: softmax makes them probabilities
};

/// What Task::show() works with.
struct ShowRequest {
  /// The network's outputs for `inputs`, in evaluation; empty where other ranks have them. Collective.
  std::function<Tensors(const Tensors& inputs)> network;
  /// The `value` that the first rank with outputs has, on every rank. Collective.
  std::function<std::int64_t(std::int64_t value)> agreed;
  std::shared_ptr<const Source> samples;  ///< held out
  std::shared_ptr<Device> device;
  std::uint64_t number = 0;  ///< another one shows something else
  Duration patience{};       ///< bounds each wait for a batch
};

class Task;

/// The one of `fields` that `task` feeds its network (Task::input_field).
const Field& input_field(const Task& task, std::span<const Field> fields);

/// Something to learn. Immutable and shared by all ranks' calls: what changes while training is in the
/// network. Functions are called by the training thread.
class Task {
 public:
  virtual ~Task() = default;

  /// Names the run, and its checkpoints: one made under another name is not resumed. "lenet", "squares".
  virtual std::string name() const = 0;

  /// The samples to train and to be evaluated on. By default the data sets that `dtrain train --dataset`
  /// knows. Throws UsageError, DataError.
  virtual Splits open(const DataRequest& request) const;

  /// What training batches are read from, the split `train` or it with fields of its own behind the others:
  /// draws that a batch shares, say. By default the split.
  virtual std::shared_ptr<const Source> for_training(std::shared_ptr<const Source> train) const {
    return train;
  }

  /// The network for samples of `fields`, its parameters on `device`, drawn from `generator` and nothing
  /// else: equal generators give equal weights. Throws UsageError for fields it cannot take.
  virtual std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                        const std::shared_ptr<Device>& device) const = 0;

  /// Parameters that move by options of their own, as torch.optim's param_groups: rates that the schedule
  /// starts from, weight decay. Of several patterns that match, the last decides; --lr-of and
  /// --weight-decay-of come behind these. Rates are as they are, whatever --scale-lr. By default none.
  ///
  ///     return {{.names = "head.*", .lr = 0.1}, {.names = "backbone.*", .lr = 0.001, .weight_decay = 0}};
  virtual std::vector<NamedGroup> parameter_groups() const { return {}; }

  /// What the learning rate is multiplied by in each step, beside --lr-schedule (LambdaLR of torch): a pure
  /// function, the same on every rank, finite and at least 0. By default empty: nothing.
  ///
  ///     return [](const LrPoint& at) { return at.epoch < 5 ? 1.0 : std::pow(0.9, at.epoch - 5); };
  virtual LrFactor lr_factor() const { return {}; }

  /// Of a sample's fields, by `names`, the one that the network is fed; by default the first. `names` may be
  /// of some of a source's fields, in its order: those there are when nothing is to be learned.
  virtual std::size_t input_field(std::span<const std::string> names) const;
  /// What the network is fed: by default input_field().
  virtual Tensors inputs(const BatchTensors& batch) const;
  /// Of a sample's fields, those that a network is fed where it is used: inputs of an exported file, if it
  /// reads them. By default all.
  virtual std::vector<Field> fields_in_use(std::span<const Field> fields) const;

  /// The mean loss over the batch's units, floating, one element; `outputs` are what the network made of
  /// inputs(batch), in float32 whatever the precision of the run.
  virtual Tensor loss(const Tensors& outputs, const BatchTensors& batch) const = 0;

  // ---- a step that is more than a network, a loss and an optimizer. By default it is not.
  /// Makes the optimizer, in the place of --optimizer and its options: of all parameters or of parts of them,
  /// which keep their names (OptimizerFactory). --lr-schedule starts from its rates.
  virtual OptimizerFactory make_optimizer() const { return {}; }
  /// The loss of training where it depends on the step, in the place of loss(), which evaluation keeps.
  virtual StepLoss step_loss() const { return {}; }
  /// The loss of training over the samples of all workers, in the place of loss(), which evaluation keeps,
  /// and of step_loss().
  virtual GroupLoss group_loss() const { return {}; }
  /// Called after each update, without gradients, on every rank alike: moving averages in the network (BYOL's
  /// target). Changes frozen parameters and buffers (both are saved), the same way on every
  /// rank.
  virtual AfterUpdate after_update() const { return {}; }
  /// Several losses and optimizers in a step, in this order; loss() and the network's own forward are for
  /// evaluation then. Parameters of no phase are not trained.
  ///
  ///     return {{.name = "critic", .parameters = {"critic.*"}, .loss = critic_loss},
  ///             {.name = "actor", .parameters = {"actor.*"}, .loss = actor_loss, .make_optimizer =
  ///             make_adam}};
  virtual std::vector<StepPhase> phases() const { return {}; }

  /// How others publish the weights of the network for samples of `fields`, so that theirs can be read and
  /// ours written; nothing where nobody does.
  virtual std::optional<PublishedFormat> published_format(std::span<const Field> fields) const;

  /// What learning from a sample of `fields` costs; nothing where nobody counts it.
  virtual std::optional<TrainingCost> training_cost(std::span<const Field> /*fields*/) const {
    return std::nullopt;
  }

  /// What the numbers that the network gives mean, for readers of predictions. By default numbers.
  virtual OutputKind output_kind() const { return OutputKind::values; }

  /// Of a classifier, the one of `fields` (i64 [], its values known) that it predicts: its first output is
  /// then logits [B, values], and evaluation makes a confusion matrix and keeps the worst mistakes for the
  /// report. A field [H, W] is predicted pixel by pixel, from logits [B, values, H, W]; the matrix then
  /// counts pixels. By default none.
  virtual const Field* predicted_field(std::span<const Field> /*fields*/) const { return nullptr; }

  /// Whether show() shows anything.
  virtual bool shows() const { return false; }
  /// A text for people to see what the network has learned, as a language model's that continues another
  /// (--sample-every). Every rank calls it alike, without gradients.
  virtual std::string show(const ShowRequest& request) const;

  // ---- networks that are split among ranks (--tensor). By default there are none.
  /// As build(), this rank's part; the initial weights are slices of build()'s. In evaluation its outputs are
  /// those of the whole network, on every rank. Throws UsageError for what the ranks cannot share.
  virtual std::unique_ptr<Module> build_tensor_parallel(std::span<const Field> fields, Generator& generator,
                                                        const std::shared_ptr<Device>& device,
                                                        const TensorParallelGroup& tp_group) const;
  /// As loss(), of a split network's outputs in training; equal on all ranks of the group.
  virtual Tensor loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                                      const TensorParallelGroup& tp_group) const;

  /// How many units the mean is over: by default the samples. A task whose samples differ in units (texts
  /// without their padding) counts them here, in the batch as the loader has it, on the host, and says so in
  /// units_vary(): then each unit of a step weighs the same, wherever it is. For a batch without any, neither
  /// loss() nor add_up() is called: there is no mean.
  virtual double units(const Batch& batch) const;
  /// Whether samples of `fields` differ in units. True costs an exchange of one number before each step.
  virtual bool units_vary(std::span<const Field> /*fields*/) const { return false; }

  // ---- evaluation: sums over batches, added up over the ranks. By default the loss alone.
  /// How many numbers add_up() adds to.
  virtual std::size_t sum_count() const { return 2; }
  /// Adds this batch of `units` units to `sums`, zero at first. Called without gradients, the network in
  /// evaluation.
  virtual void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
                      std::span<double> sums) const;
  /// What the sums over all `samples` samples mean; `samples` of the result is set by the caller.
  virtual Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const;
  /// Adds metrics of the confusion matrix (predicted_field()) to what evaluation() found. By default none.
  virtual void add_confusion(const Confusion& /*confusion*/, Evaluation& /*found*/) const {}

  // ---- metrics that are no sums: numbers of each sample, of all ranks together. By default those of a
  // classifier of two classes, whose evaluation has "auc" and "average_precision", of class 1.
  /// How many numbers are kept of each sample of `fields`; 0: none. All ranks hold those of all samples.
  virtual std::size_t kept_count(std::span<const Field> fields) const;
  /// They, [B, kept_count()], floating, of samples of `fields`. Called as add_up().
  virtual Tensor keep(const Tensors& outputs, const BatchTensors& batch, std::span<const Field> fields) const;
  /// Adds metrics to what evaluation() found. `kept`: a row for each sample of the source, in its order.
  virtual void add_kept(std::span<const double> kept, Evaluation& found) const;
};

}  // namespace dtrain
