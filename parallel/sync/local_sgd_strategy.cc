#include "parallel/sync/local_sgd_strategy.h"

#include "parallel/span_of.h"
#include "parallel/sync/equal_start.h"
#include "parallel/sync/used_parameters.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

LocalSgdStrategy::LocalSgdStrategy(const StrategyContext& context, std::int64_t sync_every)
    : ReplicatedStrategy(context), sync_every_(sync_every) {
  if (sync_every < 1) {
    throw UsageError("local SGD: expected parameters to be averaged after 1 step or more, got " +
                     std::to_string(sync_every));
  }
}

void LocalSgdStrategy::prepare(const TrainingParts& parts, const Deadline& deadline) {
  if (parts.scaler != nullptr) {
    throw UsageError(
        "local SGD: expected float32 or bfloat16, got float16, whose loss scaling would differ among the "
        "ranks");
  }
  ReplicatedStrategy::prepare(parts, deadline);
  if (guard_ == nullptr) return;
  before_update_ = [this, then = parts.before_update] {
    if (together_) agree_on_overflow(*guard_, context_.communicator, patience());
    if (then) then();
  };
}

void LocalSgdStrategy::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(context_.communicator, state, deadline);
  copy_from_first_rank(context_.communicator, state, deadline);
}

void LocalSgdStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  optimizer_->zero_grad();
  for (std::size_t i = 0; i < passes.count(); ++i) run_pass(passes, i);
  if (all) {
    complete_gradients(trainable_parameters(*network_), context_.communicator, patience());
    passes.gradients_done();
  }
  together_ = all;
  update();
  if (!all || ++since_ < sync_every_) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  average_parameters(patience());
}

void LocalSgdStrategy::average_parameters(const Deadline& deadline) {
  since_ = 0;
  ++averages_;
  average(trainable_parameters(*network_), deadline);
}

void LocalSgdStrategy::average(const NamedTensors& tensors, const Deadline& deadline) {
  if (context_.communicator.size() == 1) return;
  const NoGrad no_grad;
  std::vector<std::unique_ptr<Work>> works;
  for (const auto& [name, tensor] : tensors) {
    Tensor shares = tensor.detach();
    shares.scale_in_place(1.0 / context_.communicator.size());
    works.push_back(context_.communicator.all_reduce(span_of(tensor), ReduceOp::sum, name));
  }
  for (auto& work : works) work->wait(deadline);
  for (const auto& [name, tensor] : tensors) tensor.mark_modified();
}

// Every rank has taken as many steps since the last average, so all of them come here alike.
void LocalSgdStrategy::settle(const Deadline& deadline) {
  if (since_ > 0) average_parameters(deadline);
  NamedTensors moments;
  for (auto& state : optimizer_->named_state()) {
    if (is_floating(state.second.dtype())) moments.push_back(std::move(state));
  }
  average(moments, deadline);
  copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

}  // namespace dtrain
