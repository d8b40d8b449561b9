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

}  // namespace

Evaluation evaluate(const Task& task, const std::function<Tensors(const Tensors& inputs)>& network,
                    const std::shared_ptr<const Source>& source, const EvaluateOptions& options,
                    Communicator& communicator, const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  Loader loader(source, device,
                {.batch_size = options.batch_size, .bytes = device->type() != DeviceType::cpu});
  std::vector<std::int64_t> order;
  for (int part = options.share.rank; part < options.share.rank + options.share.parts; ++part) {
    const std::vector<std::int64_t> more = EvalSampler(source->size(), options.share.size, part).order();
    order.insert(order.end(), more.begin(), more.end());
  }
  // A rank without a sample takes part with one that others count.
  const bool counted_here = !order.empty();
  if (options.together && order.empty() && source->size() > 0) order.push_back(0);
  loader.start(std::move(order), 0);

  const TimePoint start = steady_clock().now();
  const std::size_t counted = task.sum_count();
  const Field* const predicted = task.predicted_field(source->fields());
  ConfusionCounter confusion(predicted, communicator.rank(), communicator.size());
  std::vector<double> sums(counted + 2 + confusion.sum_count());  // the task's; samples and units; confusion
  double &samples = sums[counted], &units = sums[counted + 1];
  std::int64_t batches = 0;
  Tensors last;
  while (const auto batch = loader.next(Deadline::after(options.patience))) {
    const BatchTensors tensors = to_tensors(*batch, device);
    const Tensors inputs = task.inputs(tensors);
    if (options.together) last = inputs;
    ++batches;
    const Tensors outputs = network(inputs);
    if (options.counts && counted_here) {
      const double here = task.units(*batch);
      // A batch without units has no mean to add.
      const Tensors full = in_full_precision(outputs);
      if (here > 0) task.add_up(full, tensors, here, std::span(sums).first(counted));
      if (confusion.counts()) confusion.add(full.front(), tensors[predicted->name], batch->indices);
      samples += static_cast<double>(batch->size());
      units += here;
    } else if (device->runs_ahead()) {
      device->compute_stream().synchronize();  // the batch is still being copied from
    }
  }
  if (options.together) {
    for (; batches < most_batches(source->size(), options); ++batches) network(last);
  }
  confusion.write(std::span(sums).subspan(counted + 2));
  // A rank that is slower than this one, be it by half, is no lost one.
  const Duration own = steady_clock().now() - start;
  communicator
      .all_reduce({.data = sums.data(), .count = sums.size(), .dtype = DType::f64}, ReduceOp::sum,
                  "evaluation")
      ->wait(Deadline::after(own + options.patience));
  if (samples > 0 && !(units > 0)) {
    throw UsageError(
        fmt::format("task {}: expected at least one unit to evaluate on, got {} in the {} samples of {}",
                    task.name(), units, samples, source->name()));
  }
  Evaluation found = task.evaluation(std::span(sums).first(counted), static_cast<std::int64_t>(samples));
  found.samples = static_cast<std::int64_t>(samples);
  if (confusion.counts()) found.confusion = confusion.read(std::span(sums).subspan(counted + 2));
  return found;
}

}  // namespace dtrain
