#include "worker/benchmark/step_runner.h"

#include <numeric>

#include "models/vision/image_input.h"
#include "runtime/data/sources/open_source.h"

namespace dtrain {
namespace {

constexpr std::string_view kPhase = "phase";

// What the optimizer computes does not depend on the learning rate; that it moves nothing keeps steps equal.
Recipe without_learning(Recipe recipe) {
  recipe.sgd.lr = recipe.adamw.lr = 0;
  return recipe;
}

std::vector<GradientSlot> slots_of(const Module& network) {
  std::vector<GradientSlot> slots;
  for (const auto& [name, parameter] : network.named_parameters())
    slots.push_back({name, static_cast<std::size_t>(parameter.numel()), parameter.dtype()});
  return slots;
}

}  // namespace

StepRunner::StepRunner(const Recipe& recipe, Communicator& communicator,
                       const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans)
    : recipe_(without_learning(recipe)), communicator_(communicator), device_(device), spans_(spans) {
  const NetworkInput input = load_batch(log);
  Generator generator(recipe_.seed);
  network_ = make_network(recipe_.model, input, generator, device_);
  optimizer_ = make_optimizer(recipe_, *network_);
  if (parse_precision(recipe_.precision) == Precision::fp16) {
    scaler_ = std::make_unique<GradScaler>(device_);
    scaler_->attach(*optimizer_);
  }
  parallel_ = std::make_unique<DataParallel>(communicator_, *network_, deadline());
  idle_reducer_ = std::make_unique<Reducer>(communicator_, device_, slots_of(*network_));
}

// Every rank has samples of its own, from the front of the data set.
NetworkInput StepRunner::load_batch(Log& log) {
  const auto source = open_source(recipe_.dataset, Split::train,
                                  {.data_dir = recipe_.data_dir, .cache_dir = "auto", .log = &log});
  std::vector<std::int64_t> order(static_cast<std::size_t>(recipe_.batch.per_worker));
  std::iota(order.begin(), order.end(), communicator_.rank() * recipe_.batch.per_worker);
  for (std::int64_t& index : order) index %= source->size();
  Loader loader(source, device_, {.batch_size = recipe_.batch.per_worker});
  loader.start(std::move(order), 0);
  batch_ = loader.next(deadline());
  tensors_ = to_tensors(*batch_, device_);
  device_->compute_stream().synchronize();
  return image_input(*source);
}

void StepRunner::forward_backward() {
  const Autocast autocast(parse_precision(recipe_.precision), low_weights_);
  optimizer_->zero_grad();
  Tensor loss;
  {
    const SpanScope span(spans_, "forward", kPhase);
    loss = cross_entropy((*network_)(tensors_["image"]), tensors_["label"]);
  }
  const SpanScope span(spans_, "backward", kPhase);
  scaler_ ? loss.backward(scaler_->scale_seed(1)) : loss.backward();
}

void StepRunner::update() {
  const SpanScope span(spans_, "optimizer", kPhase);
  if (scaler_) scaler_->unscale(optimizer_->gradients());
  optimizer_->step();
  if (scaler_) scaler_->update();
}

void StepRunner::step() {
  forward_backward();
  {
    const SpanScope span(spans_, "communication", kPhase);
    parallel_->finish(deadline());
  }
  update();
}

void StepRunner::compute() {
  const auto no_sync = parallel_->no_sync();
  forward_backward();
  update();
}

void StepRunner::communicate() {
  for (std::size_t index = idle_reducer_->slot_count(); index-- > 0;) idle_reducer_->mark_ready(index);
  idle_reducer_->finish(deadline());
}

}  // namespace dtrain
