#include "parallel/schedule/accumulation.h"

#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

void check_learns(const Module& network) {
  if (trainable_parameters(network).empty())
    throw UsageError("training: expected a network with a parameter that requires a gradient, got none");
}

std::unique_ptr<Module> Accumulation::build(const ModelFactory& factory, PassHooks& hooks,
                                            const Deadline& /*deadline*/) {
  scaler_ = factory.scaler;
  auto network = hooks.build([&] { return factory.build(context_.device); });
  check_learns(*network);
  network_ = network.get();
  return network;
}

void Accumulation::run(MicroBatches& passes, PassHooks& hooks, bool exchange) {
  for (std::size_t i = 0; i < passes.count(); ++i) run_pass(passes, i, hooks, exchange);
}

void Accumulation::run_pass(MicroBatches& passes, std::size_t i, PassHooks& hooks, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    hooks.begin_use(ParameterUse::forward);
    loss = passes.loss(i, (*network_)(inputs));
    hooks.after_forward(i, passes.count());
  }
  const MicroBatchBackward which{.is_last = i + 1 == passes.count(), .exchange = exchange};
  {
    const PhaseScope phase = context_.timer.phase(Phase::backward);
    if (which.is_last) passes.losses_done();
    hooks.run_backward(which,
                       [&] { start_backward(loss, passes.weight(i) / hooks.loss_divisor(), scaler_); });
  }
  hooks.after_backward(which);
}

Tensors Accumulation::evaluate(const Tensors& inputs, PassHooks& hooks) {
  hooks.begin_use(ParameterUse::evaluation);
  return (*network_)(inputs);
}

}  // namespace dtrain
