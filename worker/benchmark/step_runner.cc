#include "worker/benchmark/step_runner.h"

#include <numeric>

#include "runtime/data/loader.h"

namespace dtrain {

namespace {

// What the optimizer computes does not depend on the learning rate; that it moves nothing keeps steps equal.
TrainConfig without_learning(TrainConfig config) {
  set_lr(config.optimizer.rule, 0);
  return config;
}

}  // namespace

StepRunner::StepRunner(const TrainConfig& config, const Task& task, Communicator& communicator,
                       const std::shared_ptr<Device>& device, Log& log, SpanRecorder* spans)
    : config_(without_learning(config)),
      communicator_(communicator),
      device_(device),
      strategy_(make_data_parallel({communicator, device, config.collective_timeout, {&clock_, spans}})),
      engine_(task, *strategy_, communicator, device,
              {.precision = config.precision,
               .graphs = GraphUse::off,
               .patience = config.collective_timeout,
               .timer = {&clock_, spans}},
              log) {
  const auto source = task.open({.dataset = config.dataset,
                                 .data_dir = config.data_dir,
                                 .log = &log,
                                 .augment = config.augment,
                                 .on_bad_sample = config.on_bad_sample})
                          .train;
  batch_ = load_batch(in_epoch(source, 0));
  const Deadline deadline = Deadline::after(config_.collective_timeout);
  engine_.prepare({.build =
                       [&](const std::shared_ptr<Device>& where) {
                         Generator generator(config_.seed);
                         auto network = task.build(source->fields(), generator, where);
                         kinds_ = kinds_of(config_.optimizer, *network);
                         return network;
                       },
                   .make_optimizer =
                       [&](const NamedTensors& parameters) {
                         return make_optimizer(config_.optimizer, parameters, kinds_);
                       },
                   .limits = config_.optimizer.limits},
                  source->fields(), deadline);
  strategy_->begin(deadline);
}

// Every rank has samples of its own, from the front of the data set.
Batch StepRunner::load_batch(const std::shared_ptr<const Source>& source) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(config_.batch.per_worker));
  std::iota(order.begin(), order.end(), communicator_.rank() * config_.batch.per_worker);
  for (std::int64_t& index : order) index %= source->size();
  Loader loader(source, device_,
                {.batch_size = config_.batch.per_worker,
                 .bytes = device_->type() != DeviceType::cpu,
                 .seed = config_.seed});
  loader.start(std::move(order), 0);
  return loader.next(Deadline::after(config_.collective_timeout)).value();
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

void StepRunner::communicate() { strategy_->exchange_alone(Deadline::after(config_.collective_timeout)); }

}  // namespace dtrain
