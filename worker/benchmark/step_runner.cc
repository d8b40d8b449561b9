#include "worker/benchmark/step_runner.h"

#include <numeric>

#include "runtime/data/loader.h"

namespace dtrain {

namespace {

// What the optimizer computes does not depend on the learning rate; that it moves nothing keeps steps equal.
TrainConfig without_learning(TrainConfig recipe) {
  set_lr(recipe.optimizer.rule, 0);
  return recipe;
}

}  // namespace

StepRunner::StepRunner(const TrainConfig& recipe, const Task& task, Communicator& communicator,
                       const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans)
    : recipe_(without_learning(recipe)),
      communicator_(communicator),
      device_(device),
      strategy_(make_data_parallel({communicator, device, recipe.collective_timeout, {&clock_, spans}})),
      engine_(task, *strategy_, communicator, device,
              {.precision = recipe.precision,
               .graphs = GraphUse::off,
               .patience = recipe.collective_timeout,
               .timer = {&clock_, spans}},
              log) {
  const auto source = task.open({.dataset = recipe.dataset, .data_dir = recipe.data_dir, .log = &log}).train;
  batch_ = load_batch(source);
  const Deadline deadline = Deadline::after(recipe_.collective_timeout);
  engine_.prepare({.build =
                       [&](const std::shared_ptr<Device>& where) {
                         Generator generator(recipe_.seed);
                         return task.build(source->fields(), generator, where);
                       },
                   .make_optimizer =
                       [&](const NamedTensors& parameters) {
                         return make_optimizer(recipe_.optimizer, parameters, names_of_vectors(parameters));
                       },
                   .limits = recipe_.optimizer.limits},
                  deadline);
  strategy_->begin(deadline);
}

// Every rank has samples of its own, from the front of the data set.
Batch StepRunner::load_batch(const std::shared_ptr<const Source>& source) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(recipe_.batch.per_worker));
  std::iota(order.begin(), order.end(), communicator_.rank() * recipe_.batch.per_worker);
  for (std::int64_t& index : order) index %= source->size();
  Loader loader(source, device_,
                {.batch_size = recipe_.batch.per_worker,
                 .bytes = device_->type() != DeviceType::cpu,
                 .seed = recipe_.seed});
  loader.start(std::move(order), 0);
  return loader.next(Deadline::after(recipe_.collective_timeout)).value();
}

StepPlan StepRunner::plan() {
  return {.report = {.record = {.step = ++steps_}, .samples = batch_->size() * communicator_.size()}};
}

void StepRunner::step() {
  engine_.step(plan(), [this] { return *batch_; });
  engine_.take_report();
}

void StepRunner::compute() {
  engine_.step_alone(plan(), [this] { return *batch_; });
}

void StepRunner::communicate() { strategy_->exchange_alone(Deadline::after(recipe_.collective_timeout)); }

}  // namespace dtrain
