#include "training/engine/evaluate.h"

#include <array>

#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "training/batch_tensors.h"

namespace dtrain {
namespace {

std::int64_t count_equal(const Tensor& guesses, const Tensor& labels) {
  const auto a = guesses.to_vector<std::int64_t>();
  const auto b = labels.to_vector<std::int64_t>();
  std::int64_t equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i] ? 1 : 0;
  return equal;
}

}  // namespace

Evaluation evaluate(Module& network, const std::shared_ptr<const Source>& source, std::int64_t batch_size,
                    Communicator& communicator, const std::shared_ptr<Device>& device, Duration patience) {
  const NoGrad no_grad;
  network.eval();
  Loader loader(source, device, {.batch_size = batch_size});
  loader.start(EvalSampler(source->size(), communicator.size(), communicator.rank()).order(), 0);

  const TimePoint start = steady_clock().now();
  std::array<double, 3> sums{};  // loss, right guesses, samples
  while (const auto batch = loader.next(Deadline::after(patience))) {
    const BatchTensors tensors = to_tensors(*batch, device);
    const Tensor logits = network(tensors["image"]);  // [B, classes]
    sums[0] += cross_entropy(logits, tensors["label"], LossReduction::sum).item();
    sums[1] += static_cast<double>(count_equal(argmax(logits), tensors["label"]));
    sums[2] += static_cast<double>(batch->size());
  }
  network.train();
  // A rank that is slower than this one, be it by half, is no lost one.
  const Duration own = steady_clock().now() - start;
  communicator
      .all_reduce({.data = sums.data(), .count = sums.size(), .dtype = DType::f64}, ReduceOp::sum,
                  "evaluation")
      ->wait(Deadline::after(own + patience));
  return {sums[0] / sums[2], sums[1] / sums[2], static_cast<std::int64_t>(sums[2])};
}

}  // namespace dtrain
