#include "training/engine/evaluate.h"

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"

namespace dtrain {

Tensors in_full_precision(Tensors outputs) {
  for (Tensor& output : outputs) output = autocast_full(output);
  return outputs;
}

Evaluation evaluate(const Task& task, const std::function<Tensors(const Tensors& inputs)>& network,
                    const std::shared_ptr<const Source>& source, const EvaluateOptions& options,
                    Communicator& communicator, const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  Loader loader(source, device, {.batch_size = options.batch_size});
  std::vector<std::int64_t> order;
  for (int part = options.share.rank; part < options.share.rank + options.share.parts; ++part) {
    const std::vector<std::int64_t> more = EvalSampler(source->size(), options.share.size, part).order();
    order.insert(order.end(), more.begin(), more.end());
  }
  loader.start(std::move(order), 0);

  const TimePoint start = steady_clock().now();
  const std::size_t counted = task.sum_count();
  std::vector<double> sums(counted + 1);  // the task's, then the samples
  while (const auto batch = loader.next(Deadline::after(options.patience))) {
    const BatchTensors tensors = to_tensors(*batch, device);
    const Tensors outputs = network(task.inputs(tensors));
    if (options.counts) {
      task.add_up(in_full_precision(outputs), tensors, task.units(*batch), std::span(sums).first(counted));
      sums[counted] += static_cast<double>(batch->size());
    } else if (device->runs_ahead()) {
      device->compute_stream().synchronize();  // the batch is still being copied from
    }
  }
  // A rank that is slower than this one, be it by half, is no lost one.
  const Duration own = steady_clock().now() - start;
  communicator
      .all_reduce({.data = sums.data(), .count = sums.size(), .dtype = DType::f64}, ReduceOp::sum,
                  "evaluation")
      ->wait(Deadline::after(own + options.patience));
  const auto samples = static_cast<std::int64_t>(sums[counted]);
  Evaluation found = task.evaluation(std::span(sums).first(counted), samples);
  found.samples = samples;
  return found;
}

}  // namespace dtrain
