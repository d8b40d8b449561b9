#include "parallel/data/sharded/sharded_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/data/equal_start.h"
#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/clip.h"

namespace dtrain {
namespace {

NamedTensors learning(const Module& network) {
  NamedTensors parameters;
  for (NamedTensor& parameter : network.named_parameters()) {
    if (parameter.second.requires_grad()) parameters.push_back(std::move(parameter));
  }
  if (parameters.empty())
    throw UsageError("sharded data parallel: the module has no parameter that requires a gradient");
  return parameters;
}

/// Copies what `files` have of `tensors` into them. Throws UsageError for one that is not there.
void load_whole(const TensorFiles& files, const NamedTensors& tensors,
                const std::shared_ptr<Device>& device) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  const NoGrad no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto saved = std::ranges::find(files.tensors(), name, &SavedTensor::name);
    if (saved == files.tensors().end() || saved->shape != tensor.shape())
      throw UsageError(fmt::format("checkpoint: expected a tensor '{}' ({}), got {}", name, tensor.describe(),
                                   saved == files.tensors().end() ? "none" : saved->shape.to_string()));
    const Tensor read = Tensor::empty(saved->shape, host, saved->dtype);
    files.read(name, read.view());
    Tensor(tensor).copy_from(read.to(tensor.shared_device()));
  }
}

}  // namespace

ShardedStrategy::ShardedStrategy(const StrategyContext& context, ShardOptions options,
                                 std::optional<ShardGroups> groups)
    : context_(context), options_(options), groups_(groups) {
  options_.patience = context_.patience;
}

void ShardedStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  limits_ = parts.limits;
  scaler_ = parts.scaler;
  before_update_ = parts.before_update;
  if (divides()) {
    build_divided(parts);
  } else {
    network_ = parts.build(context_.device);
  }
  own_parameters(parts.slices ? parts.slices(*network_) : std::map<std::string, TensorPart>());
  NamedTensors owned;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (owned_[i].defined()) owned.emplace_back(parameters_[i].name, owned_[i]);
  }
  if (owned.empty()) {
    throw UsageError(fmt::format(
        "sharded data parallel: expected a network with an element for each of {} ranks, got {} elements, of "
        "which rank {} owns none; use fewer workers",
        this->parts().size(), network_->parameter_count(), this->parts().rank()));
  }
  optimizer_ = parts.make_optimizer(owned);
  if (scaler_ != nullptr) scaler_->attach(*optimizer_);
}

// Each module is divided as soon as it is complete. What looks at it afterwards (initial weights from a file)
// gets it whole for a moment.
void ShardedStrategy::build_divided(const TrainingParts& parts) {
  divided_ = std::make_unique<DividedParameters>(this->parts(), context_.patience);
  {
    const ModuleWatch watch([this](Module& module) { divided_->divide(module); });
    network_ = parts.build(context_.device);
  }
  network_->visit([this](Module& module) { divided_->divide(module); });
  divided_->let_go();
}

void ShardedStrategy::own_parameters(const std::map<std::string, TensorPart>& slices) {
  is_sliced_ = !slices.empty();
  const NamedTensors whole = learning(*network_);
  std::vector<std::size_t> units(whole.size()), last_of_bucket;
  for (std::size_t i = 0; divided_ && i < whole.size(); ++i) {
    const auto& divided = divided_->parameters();
    const auto found = std::ranges::find_if(
        divided, [&](const DividedParameter& one) { return one.whole.shares_storage(whole[i].second); });
    if (found == divided.end()) {
      throw UsageError(fmt::format("sharded data parallel: expected parameters with elements, got '{}' ({})",
                                   whole[i].first, whole[i].second.describe()));
    }
    parameters_.push_back({whole[i].first, found->whole, found->range, found->own()});
    // Gradients come last first. A large module's are not to stay until the next module's are there.
    const bool large = divided_->unit_bytes(found->unit) > options_.bucket_bytes / 4;
    if (large && (i == 0 || found->unit != units[i - 1])) last_of_bucket.push_back(i);
    units[i] = found->unit;
  }
  exchange_ = std::make_unique<ShardExchange>(parts(), whole, options_, last_of_bucket);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!divided_) parameters_.push_back({whole[i].first, whole[i].second, exchange_->owned(i)});
    if (const auto slice = slices.find(whole[i].first); slice != slices.end())
      parameters_[i].slice = slice->second;
    owned_.emplace_back();
    if (!parameters_[i].is_owned()) continue;
    owned_.back() = parameters_[i].owned();
    owned_.back().set_requires_grad(true);
  }
}

void ShardedStrategy::load(const SavedState& state, const Deadline& deadline) {
  check_values_together(*state.optimizer, context_.communicator, deadline);
  if (divides() || is_sliced_) {
    check_values_together(*state.model, context_.communicator, deadline);
    load_model(*state.model);
  } else {
    network_->load_state_dict(load_tensors(*state.model, context_.device));
  }
  optimizer_->load_state(owned_state(*state.optimizer, parameters_, context_.device));
}

// What is whole everywhere is read whole; of the rest each rank reads what it has.
void ShardedStrategy::load_model(const TensorFiles& files) {
  std::vector<OwnedParameter> here = with_other_names();
  for (OwnedParameter& parameter : here) {
    if (!divides()) parameter.range = {0, static_cast<std::size_t>(parameter.whole.numel())};
  }
  read_owned(files, here);
  load_whole(files, whole_tensors(), context_.device);
  if (divided_) divided_->mark_modified();
}

void ShardedStrategy::begin(const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(context_.communicator, state, deadline);
  copy_from_first_rank(context_.communicator, divides() ? whole_tensors() : state, deadline);
  if (divides() && has_copies()) {
    NamedTensors own;
    for (const OwnedParameter& parameter : parameters_) {
      if (parameter.is_owned()) own.emplace_back(parameter.name, parameter.own);
    }
    copy_from_first_rank(groups_->copies, own, deadline);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& parameter = parameters_[i].whole;
    parameter.on_grad_ready([this, i] {
      if (parameters_[i].whole.grad().defined()) exchange_->mark_ready(i);
    });
  }
}

void ShardedStrategy::begin_use(ParameterUse use) {
  if (divided_) divided_->begin(use);
}

void ShardedStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  network_->zero_grad();
  exchange_->begin_step();
  // Where gradients are not kept, each pass is exchanged; else the last one, with the sum of all.
  const bool each = options_.stage != ShardStage::optimizer;
  for (std::size_t i = 0; i < passes.count(); ++i)
    run_pass(passes, i, all && (each || i + 1 == passes.count()));
  if (divided_) divided_->let_go();
  if (!all) return network_->zero_grad();
  {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    if (has_copies()) average_copies();
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      if (owned_[i].defined()) owned_[i].set_grad(exchange_->owned_gradient(i));
    }
    passes.gradients_done();
  }
  update();
}

void ShardedStrategy::run_pass(Passes& passes, std::size_t i, bool exchange) {
  const Tensors inputs = passes.inputs(i);
  Tensor loss;
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    begin_use(ParameterUse::forward);
    loss = passes.loss(i, (*network_)(inputs));
  }
  {
    const PhaseScope phase = context_.timer.phase(Phase::backward);
    if (i + 1 == passes.count()) passes.losses_done();
    begin_use(ParameterUse::backward);
    exchange_->set_sync(exchange);
    start_backward(loss, passes.weight(i), scaler_);
  }
  if (!exchange) return;
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  exchange_->finish_pass();
}

void ShardedStrategy::update() {
  {
    const PhaseScope phase = context_.timer.phase(Phase::optimizer);
    const NoGrad no_grad;
    const std::vector<Tensor> gradients = optimizer_->gradients();
    if (scaler_ != nullptr) {
      scaler_->unscale(gradients);
      agree_on_overflow(*scaler_, context_.communicator, patience());
    }
    if (before_update_) before_update_();
    if (limits_.value) clip_grad_value(gradients, *limits_.value);
    if (limits_.norm) clip_to_norm(gradients, *limits_.norm);
    optimizer_->step();
    if (scaler_ != nullptr) scaler_->update();
    optimizer_->zero_grad();
    network_->zero_grad();
  }
  if (divided_) return divided_->mark_modified();
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  exchange_->gather_parameters();
}

// What a group of ranks with a part each added up goes once more between the groups: 1/parts of the bytes.
void ShardedStrategy::average_copies() {
  const NoGrad no_grad;
  std::vector<std::unique_ptr<Work>> works;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].is_owned()) continue;
    Tensor gradient = exchange_->owned_gradient(i);
    gradient.scale_in_place(1.0 / groups_->copies.size());
    works.push_back(groups_->copies.all_reduce(span_of(gradient), ReduceOp::sum, parameters_[i].name));
    gradient.mark_modified();
  }
  for (auto& work : works) work->wait(patience());
}

// The norm of all ranks' parts together.
void ShardedStrategy::clip_to_norm(const std::vector<Tensor>& gradients, double most) {
  const Tensor own = total_norm(gradients);
  const Tensor squares = mul(own, own);
  parts().all_reduce(span_of(squares), ReduceOp::sum, "norm of the gradients")->wait(patience());
  squares.mark_modified();
  scale_to_norm(gradients, sqrt(squares), most);
}

void ShardedStrategy::settle(const Deadline& deadline) {
  copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

Tensors ShardedStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  begin_use(ParameterUse::evaluation);
  return (*network_)(inputs);
}

// Of copies the first are saved.
StateParts ShardedStrategy::save() {
  if (has_copies() && groups_->copies.rank() > 0) return {};
  return sharded_parts(with_other_names(), whole_tensors(), optimizer_->named_state(), parts().rank());
}

Replicas ShardedStrategy::replicas() {
  if (!divides()) return {&context_.communicator, network_->named_parameters()};
  if (!has_copies()) return {};
  NamedTensors own;
  for (const OwnedParameter& parameter : parameters_) {
    if (parameter.is_owned()) own.emplace_back(parameter.name, parameter.own);
  }
  return {&groups_->copies, own};
}

/// Buffers, and parameters that do not learn: nobody owns a part of them.
NamedTensors ShardedStrategy::whole_tensors() const {
  NamedTensors tensors = network_->named_buffers();
  for (const auto& [name, tensor] : network_->named_parameters()) {
    if (!tensor.requires_grad()) tensors.emplace_back(name, tensor);
  }
  return tensors;
}

/// Parameters once for each name that they have: tied weights have several.
std::vector<OwnedParameter> ShardedStrategy::with_other_names() const {
  std::vector<OwnedParameter> all = parameters_;
  for (const auto& [name, tensor] : network_->state_dict()) {
    for (const OwnedParameter& parameter : parameters_) {
      if (!parameter.whole.shares_storage(tensor) || parameter.name == name) continue;
      OwnedParameter other = parameter;
      other.name = name;
      all.push_back(std::move(other));
    }
  }
  return all;
}

void ShardedStrategy::exchange_alone(const Deadline& /*deadline*/) {
  exchange_->exchange_nothing(patience());
}

std::string ShardedStrategy::account(std::int64_t steps) const {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const std::uint64_t gathered = divided_ ? divided_->stats().gathered_bytes : stats().gathered_bytes;
  const std::string text =
      fmt::format("held at most {:.1f} MiB; in a step: {:.2f} MiB of gradients, {:.2f} of parameters",
                  mib(context_.device->peak_allocated_bytes()), mib(stats().reduced_bytes) / count,
                  mib(gathered) / count);
  if (!divided_) return text;
  const DividedStats& divided = divided_->stats();
  return text + fmt::format(
                    "\nwhole at the same time: at most {:.2f} MiB of parameters; {} of {} modules came ahead",
                    mib(divided.most_bytes), divided.begun_ahead, divided.gathers);
}

}  // namespace dtrain
