#include "parallel/parallel_model.h"

#include "parallel/share.h"
#include "parallel/sync/equal_start.h"
#include "parallel/sync/sharded/sharded_parameters.h"
#include "parallel/tensor/split_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

std::vector<Tensor> gradients_of(const NamedTensors& parameters) {
  std::vector<Tensor> gradients;
  for (const auto& [name, tensor] : parameters) gradients.push_back(tensor.grad());
  return gradients;
}

NamedTensors learning(NamedTensors parameters) {
  std::erase_if(parameters, [](const NamedTensor& parameter) { return !parameter.second.requires_grad(); });
  return parameters;
}

}  // namespace

ParallelModel::ParallelModel(const StrategyContext& context, std::string_view name,
                             std::unique_ptr<Schedule> schedule, std::unique_ptr<GradientSync> sync)
    : Strategy({.name = name, .share = sync->share(), .holds_outputs = schedule->holds_outputs()}),
      context_(context),
      all_(&context.communicator),
      schedule_(std::move(schedule)),
      sync_(std::move(sync)) {
  const ShardedParameters* const shards = sync_->shards();
  traits_.sharded = schedule_->stages() != nullptr || shards != nullptr || sync_->partitions_state();
  traits_.replicated = !traits_.sharded;
  traits_.computes_together = shards != nullptr && shards->shards_parameters();
  traits_.sync_state_alters_steps = sync_->sync_state_alters_steps();
}

ParallelModel::~ParallelModel() = default;

void ParallelModel::split_over(Communicator& all, const RankGroup& group) {
  all_ = &all;
  tp_group_.emplace(group);
  traits_.name = "tensor parallel";
  traits_.holds_outputs = traits_.holds_outputs && group.communicator.rank() == 0;
  traits_.sharded = true;
  traits_.replicated = false;
}

void ParallelModel::prepare(const ModelFactory& factory, const Deadline& deadline) {
  limits_ = factory.limits;
  shares_checkpoint_ = factory.shares_checkpoint;
  scaler_ = factory.scaler;
  guard_ = factory.update_guard();
  network_ = schedule_->build(factory, *sync_, deadline);
  if (trainable_parameters(*network_).empty()) sync_ = share_frozen(*sync_);
  attach(factory);
  optimizer_ = factory.make_optimizer(sync_->updated());
  if (guard_ != nullptr) guard_->attach(*optimizer_);
  if (CommHook* hook = sync_->hook(); hook != nullptr && scaler_ != nullptr) hook->await_step_outcomes();
  if (factory.average) average_weights(*factory.average);
  set_prepared(*network_, {optimizer_.get()}, average_ ? &*average_ : nullptr);
}

// Of parameters, what this rank updates; copies of the others follow from it.
void ParallelModel::average_weights(const AverageOptions& options) {
  NamedTensors tensors = learning(optimizer_->parameters());
  for (NamedTensor& buffer : network_->named_buffers()) tensors.push_back(std::move(buffer));
  average_.emplace(tensors, options);
  average_->on_swap([this] { sync_->take_update(false, patience()); });
}

// Ranks that have the state of some parameters each have the averages of all buffers.
NamedTensors ParallelModel::update_state() const {
  NamedTensors state = optimizer_->named_state();
  if (!average_) return state;
  NamedTensors averages = average_->named_state();
  if (sync_->partitions_state() && sync_->dp_group().rank() > 0) {
    const NamedTensors buffers = network_->named_buffers();
    std::erase_if(averages, [&](const NamedTensor& one) { return belongs_to(one.first, buffers); });
  }
  for (NamedTensor& one : averages) state.push_back(std::move(one));
  return state;
}

void ParallelModel::load_update_state(NamedTensors state) {
  const NamedTensors averages = take_averages(state);
  if (shares_checkpoint_)
    std::erase_if(state,
                  [&](const NamedTensor& one) { return !belongs_to(one.first, optimizer_->parameters()); });
  optimizer_->load_state(state);
  if (average_) average_->load_state(averages);
}

NamedTensors ParallelModel::stateful_tensors() const {
  NamedTensors tensors = sync_->updated();
  for (NamedTensor& buffer : network_->named_buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

void ParallelModel::attach(const ModelFactory& factory) {
  const ShardedParameters* const shards = sync_->shards();
  StageLayout* const stage = schedule_->stages();
  layout_.emplace(
      LayoutGroups{.dp_group = sync_->dp_group(),
                   .shard_group = shards != nullptr ? &shards->groups().shard_group : nullptr,
                   .replicate_group = shards != nullptr ? shards->groups().replicate_group : nullptr,
                   .tp_group = tp_group_ ? &tp_group_->communicator : nullptr,
                   .stages = stage != nullptr ? &stage->stages : nullptr,
                   .is_state_partitioned = sync_->partitions_state()},
      *network_, stage, tp_group_ ? slices_of(*network_, *tp_group_) : std::map<std::string, TensorShard>());
  sync_->attach(
      {.network = *network_,
       .parameters = layout_->parameters(),
       .passes = {schedule_->chunks(),
                  [this](const std::string& parameter) { return schedule_->chunk_of(parameter); }},
       .in_order = [&] { return factory.make_optimizer(network_->named_parameters())->parameters(); },
       .is_scaled = scaler_ != nullptr});
}

void ParallelModel::load(const CheckpointFiles& state, const Deadline& deadline) {
  if (sharded()) return load_sharded(state, deadline);
  NamedTensors optimizer, kept;
  if (all_->rank() == 0) {
    network_->load_state_dict(layout_->read_model(*state.model, context_.device));
    optimizer = layout_->read_optimizer(*state.optimizer, stateful_tensors(), context_.device);
    if (sync_->is_stateful()) kept = layout_->read_sync_state(*state.optimizer, context_.device);
  }
  load_update_state(broadcast_tensors(*all_, optimizer, context_.device, deadline));
  if (sync_->is_stateful()) sync_->load_state(broadcast_tensors(*all_, kept, context_.device, deadline));
}

void ParallelModel::load_sharded(const CheckpointFiles& state, const Deadline& deadline) {
  check_values_together(*state.optimizer, *all_, deadline);
  check_values_together(*state.model, *all_, deadline);
  if (sync_->shards() != nullptr) {
    layout_->read_ranges(*state.model);
  } else {
    network_->load_state_dict(layout_->read_model(*state.model, context_.device));
  }
  load_update_state(layout_->read_optimizer(*state.optimizer, stateful_tensors(), context_.device));
  if (sync_->is_stateful()) sync_->load_state(layout_->read_sync_state(*state.optimizer, context_.device));
}

void ParallelModel::step(MicroBatches& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  if (all && passes.begin_trial(*network_)) {
    sync_->begin_step(passes.count());
    schedule_->run(passes, *sync_, !sync_->keeps_gradients());
    sync_->drop_step();
    passes.end_trial();
  }
  sync_->begin_step(passes.count());
  schedule_->run(passes, *sync_, all);
  if (all) {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    sync_->finish(patience());
    layout_->add_up_ties(learning(sync_->shared(*optimizer_)), patience());
    passes.gradients_done();
  } else {
    sync_->drop_step();
    if (!sync_->keeps_gradients()) return;  // there is nothing to update by
  }
  update(all);
}

bool ParallelModel::differs(bool exchange) const noexcept {
  return tp_group_ || schedule_->stages() != nullptr || (exchange && !sync_->equal_gradients());
}

// Of an overflow one rank may know alone: what comes of it is said by all.
void ParallelModel::inspect(const NamedTensors& parameters, bool suspected, bool exchange) {
  if (suspected) guard_->inspect(gradients_of(parameters));
  if (differs(exchange)) agree_on_overflow(*guard_, *all_, patience());
}

// The update shows what is not finite in its gradients, and ends the run; what clipping makes finite is
// looked for before.
void ParallelModel::update(bool exchange) {
  {
    const PhaseScope phase = context_.timer.phase(Phase::optimizer);
    const NoGrad no_grad;
    const NamedTensors shared = sync_->shared(*optimizer_);
    const bool first = guard_ != nullptr && (guard_->inspects_first() || limits_.value);
    if (first) inspect(shared, true, exchange);
    if (CommHook* hook = sync_->hook(); hook != nullptr && scaler_ != nullptr)
      hook->on_step_outcome(scaler_->found());
    layout_->limit(shared, limits_, patience());
    optimizer_->step();
    if (guard_ != nullptr && !first) inspect(shared, guard_->corrupted_any(), exchange);
    if (guard_ != nullptr) guard_->update();
    if (average_) average_->update();
  }
  sync_->take_update(exchange, patience());
}

void ParallelModel::sync_state(const Deadline& deadline) {
  sync_->sync_state(update_state(), deadline);
  if (!average_) return;
  NamedTensors averages = average_->named_state();
  const NamedTensors buffers = network_->named_buffers();
  std::erase_if(averages, [&](const NamedTensor& one) { return !belongs_to(one.first, buffers); });
  copy_from_first_rank(sync_->dp_group(), averages, deadline);
}

std::optional<int> ParallelModel::graph_key(std::int64_t /*step*/) const {
  const bool recordable = !tp_group_ && schedule_->recordable() && sync_->recordable();
  return recordable ? std::optional(0) : std::nullopt;
}

Tensors ParallelModel::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  Tensors outputs = schedule_->evaluate(inputs, *sync_);
  return holds_outputs() ? outputs : Tensors();
}

RankState ParallelModel::held() {
  NamedTensors state = update_state(), kept = named_for_saving(sync_->state());
  if (sharded() && sync_->shards() == nullptr) {
    RankState parts{layout_->written(network_->state_dict()), layout_->written_state(std::move(state))};
    for (NamedShard& part : layout_->written_sync_state(kept)) parts.optimizer.push_back(std::move(part));
    return parts;
  }
  if (sharded()) state = layout_->counted_here(std::move(state));
  for (NamedTensor& tensor : kept) state.push_back(std::move(tensor));
  if (sharded()) return layout_->written_ranges(std::move(state));
  return {whole(network_->state_dict()), whole(state)};
}

StrategyReport ParallelModel::report(std::int64_t steps) const {
  StrategyReport report{.plan = schedule_->plan(), .tuned_config = schedule_->tuned_config()};
  if (const ShardedParameters* shards = sync_->shards())
    report.stats = shards->describe_stats(context_.device->peak_allocated_bytes(), steps);
  return report;
}

}  // namespace dtrain
