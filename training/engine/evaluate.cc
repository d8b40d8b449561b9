#include "training/engine/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "training/engine/confusion_counter.h"

namespace dtrain {

Tensors in_full_precision(Tensors outputs) {
  for (Tensor& output : outputs) output = autocast_full(output);
  return outputs;
}

namespace {

/// Of the rank that has most samples, which are the first's.
std::int64_t most_batches(std::int64_t samples, const EvaluateOptions& options) {
  std::int64_t most = 0;
  for (int rank = 0; rank < options.share.size; ++rank) {
    const EvalSampler sampler(samples, options.share.size, rank);
    most = std::max(most, sampler.end() - sampler.begin());
  }
  return (most + options.batch_size - 1) / options.batch_size;
}

/// The samples of the rank's parts, in order.
std::vector<std::int64_t> own_samples(std::int64_t samples, const EvaluateOptions& options) {
  std::vector<std::int64_t> order;
  for (int part = options.share.rank; part < options.share.rank + options.share.parts; ++part) {
    const std::vector<std::int64_t> more = EvalSampler(samples, options.share.size, part).order();
    order.insert(order.end(), more.begin(), more.end());
  }
  return order;
}

/// What ranks add up: the task's sums, samples, units, and of a classifier its confusion.
class EvaluationSums {
 public:
  EvaluationSums(const Task& task, const Source& source, const Communicator& communicator)
      : task_(task),
        source_(source),
        predicted_(task.predicted_field(source.fields())),
        confusion_(predicted_, communicator.rank(), communicator.size()),
        counted_(task.sum_count()),
        sums_(counted_ + 2 + confusion_.sum_count()),
        width_(task.kept_count(source.fields())),
        kept_(width_ * static_cast<std::size_t>(source.size())) {}

  void add(const Tensors& outputs, const BatchTensors& tensors, const Batch& batch) {
    const double units = task_.units(batch);
    // A batch without units has no mean to add.
    const Tensors full = in_full_precision(outputs);
    if (units > 0) task_.add_up(full, tensors, units, std::span(sums_).first(counted_));
    if (confusion_.counts()) confusion_.add(full.front(), tensors[predicted_->name], batch.indices);
    if (width_ > 0) keep(task_.keep(full, tensors, source_.fields()), batch.indices);
    sums_[counted_] += static_cast<double>(batch.size());
    sums_[counted_ + 1] += units;
  }

  void all_reduce(Communicator& communicator, const Deadline& deadline) {
    confusion_.write(std::span(sums_).subspan(counted_ + 2));
    const MemorySpan sums{.data = sums_.data(), .count = sums_.size(), .dtype = DType::f64};
    communicator.all_reduce(sums, ReduceOp::sum, "evaluation")->wait(deadline);
    if (kept_.empty()) return;
    // Each row is one rank's, and 0 on the others: the sum has its bits.
    communicator
        .all_reduce({.data = kept_.data(), .count = kept_.size(), .dtype = DType::f64}, ReduceOp::sum,
                    "evaluation")
        ->wait(deadline);
  }

  /// Of all ranks, behind all_reduce(). Throws UsageError for samples without a unit.
  Evaluation evaluation() const {
    const double samples = sums_[counted_], units = sums_[counted_ + 1];
    if (samples > 0 && !(units > 0)) {
      throw UsageError(
          fmt::format("task {}: expected at least one unit to evaluate on, got {} in the {} samples of {}",
                      task_.name(), units, samples, source_.name()));
    }
    const std::span<const double> sums(sums_);
    Evaluation found = task_.evaluation(sums.first(counted_), static_cast<std::int64_t>(samples));
    found.samples = static_cast<std::int64_t>(samples);
    if (confusion_.counts()) {
      found.confusion = confusion_.read(sums.subspan(counted_ + 2));
      task_.add_confusion(*found.confusion, found);
    }
    if (width_ > 0) task_.add_kept(kept_, found);
    return found;
  }

 private:
  void keep(const Tensor& rows, std::span<const std::int64_t> indices) {
    const Dims expected = {static_cast<std::int64_t>(indices.size()), static_cast<std::int64_t>(width_)};
    if (!rows.defined() || rows.shape() != expected) {
      throw UsageError(fmt::format(
          "task {}: expected of keep() the {} numbers of each of {} samples (kept_count()), got {}",
          task_.name(), width_, indices.size(), rows.defined() ? rows.describe() : "an undefined tensor"));
    }
    const std::vector<double> values = rows.to_vector<double>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width_), width_,
                  kept_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(indices[i]) * width_));
    }
  }

  const Task& task_;
  const Source& source_;
  const Field* predicted_;
  ConfusionCounter confusion_;
  std::size_t counted_;  ///< the task's sums
  std::vector<double> sums_;
  std::size_t width_;         ///< numbers of a sample in kept_
  std::vector<double> kept_;  ///< a row a sample of the source; 0 where other ranks have it
};

}  // namespace

Evaluation evaluate(const Task& task, const std::function<Tensors(const Tensors& inputs)>& network,
                    const std::shared_ptr<const Source>& source, const EvaluateOptions& options,
                    Communicator& communicator, const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  Loader loader(source, device,
                {.batch_size = options.batch_size, .bytes = device->type() != DeviceType::cpu});
  std::vector<std::int64_t> order = own_samples(source->size(), options);
  // A rank without a sample takes part with one that others count.
  const bool counted_here = !order.empty();
  if (options.together && order.empty() && source->size() > 0) order.push_back(0);
  loader.start(std::move(order), 0);

  const TimePoint start = steady_clock().now();
  EvaluationSums sums(task, *source, communicator);
  std::int64_t batches = 0;
  Tensors last;
  while (const auto batch = loader.next(Deadline::after(options.patience))) {
    const BatchTensors tensors = to_tensors(*batch, device);
    const Tensors inputs = task.inputs(tensors);
    if (options.together) last = inputs;
    ++batches;
    const Tensors outputs = network(inputs);
    if (options.counts && counted_here) {
      sums.add(outputs, tensors, *batch);
    } else if (device->runs_ahead()) {
      device->compute_stream().synchronize();  // the batch is still being copied from
    }
  }
  if (options.together) {
    for (; batches < most_batches(source->size(), options); ++batches) network(last);
  }
  // A rank that is slower than this one, be it by half, is no lost one.
  const Duration own = steady_clock().now() - start;
  sums.all_reduce(communicator, Deadline::after(own + options.patience));
  return sums.evaluation();
}

}  // namespace dtrain
