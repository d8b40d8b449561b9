#include "parallel/server/server_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "parallel/share.h"
#include "parallel/sync/equal_start.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

const std::string kApplied = "server-applied";

}  // namespace

void ServerStrategy::prepare(const ModelFactory& factory, const Deadline& deadline) {
  if (factory.scaler != nullptr) {
    throw UsageError(
        "parameter server: expected float32 or bfloat16, got float16, whose loss scaling would differ among "
        "the workers");
  }
  network_ = passes_.build(factory, hooks_, deadline);
  optimizer_ = factory.make_optimizer(network_->named_parameters());
  guard_ = factory.update_guard();
  if (guard_ != nullptr) guard_->attach(*optimizer_);
  set_prepared(*network_, {optimizer_.get()});
  parameters_ = trainable_parameters(*network_);
  keys_ = server::lay_out_keys(parameters_, store_.servers());
}

void ServerStrategy::load(const CheckpointFiles& state, const Deadline& /*deadline*/) {
  if (!is_root()) return;
  network_->load_state_dict(load_tensors(*state.model, context_.device));
  const NamedTensors frozen = frozen_parameters(*network_);
  loaded_ = load_tensors(*state.optimizer, make_device("cpu"));
  std::erase_if(loaded_, [&](const NamedTensor& saved) { return belongs_to(saved.first, frozen); });
}

void ServerStrategy::load_notes(const std::map<std::string, std::string>& notes) {
  const auto found = notes.find(kApplied);
  if (found == notes.end()) return;
  applied_.clear();
  std::istringstream text(found->second);
  for (std::string word; std::getline(text, word, ',');) applied_.push_back(parse_integer(word).value_or(0));
  // With another number of workers it is unknown which has seen what: all continue from the slowest.
  const auto workers = static_cast<std::size_t>(context_.communicator.size());
  if (applied_.size() != workers && !applied_.empty())
    applied_.assign(workers, *std::min_element(applied_.begin(), applied_.end()));
}

std::map<std::string, std::string> ServerStrategy::notes() const {
  if (applied_.empty()) return {};
  return {{kApplied, fmt::format("{}", fmt::join(applied_, ","))}};
}

void ServerStrategy::begin(const Deadline& deadline) {
  if (in_step()) {
    const NamedTensors state = network_->state_dict();
    check_same_model(context_.communicator, state, deadline);
    copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
  }
  if (is_root()) start_servers(deadline);
  // What rank 0 has brought is all there when it says so.
  broadcast_text(context_.communicator, "ready", deadline);
  for (const server::ParameterKey& key : keys_) {
    const Tensor value = key.part_of(parameters_[key.parameter].second);
    if (!is_root()) own_steps_ = store_.expect(key.name, value, deadline, key.server);
  }
  begun_ = true;
  pull(deadline);
}

void ServerStrategy::start_servers(const Deadline& deadline) {
  if (!loaded_.empty() || !applied_.empty()) {
    const auto states = server::state_by_server(keys_, parameters_, loaded_, store_.servers());
    for (int i = 0; i < store_.servers(); ++i)
      store_.restore(i, states[static_cast<std::size_t>(i)], applied_, deadline);
  }
  loaded_.clear();
  for (const server::ParameterKey& key : keys_)
    own_steps_ = store_.init(key.name, key.part_of(parameters_[key.parameter].second), deadline, key.server);
}

void ServerStrategy::step(MicroBatches& passes, Exchange exchange) {
  if (exchange == Exchange::all && passes.begin_trial(*network_)) {
    optimizer_->zero_grad();
    passes_.run(passes, hooks_, false);
    passes.end_trial();
  }
  optimizer_->zero_grad();
  passes_.run(passes, hooks_, exchange == Exchange::all);
  if (exchange == Exchange::no_sync) return;
  passes.gradients_done();
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  // So many asynchronous updates as there are workers move the parameters as one synchronous one does.
  const double rate = optimizer_->lr() / (in_step() ? 1 : context_.communicator.size());
  const NamedTensors own = gradients();
  if (!are_finite(own)) return;
  delay_ = store_.exchange(own, rate, values(), patience());
  for (const auto& [name, tensor] : parameters_) tensor.mark_modified();
}

// Undefined where this worker did not use the parameter.
NamedTensors ServerStrategy::gradients() {
  const NoGrad no_grad;
  std::vector<Tensor> whole;
  for (const auto& [name, parameter] : parameters_)
    whole.push_back(parameter.grad().defined() ? parameter.grad().detach().contiguous() : Tensor());
  NamedTensors parts;
  for (const server::ParameterKey& key : keys_) {
    const Tensor& gradient = whole[key.parameter];
    parts.emplace_back(key.name, gradient.defined() ? key.part_of(gradient) : Tensor());
  }
  return parts;
}

// Servers hold the only parameters there are: what must not move them is not sent.
bool ServerStrategy::are_finite(const NamedTensors& gradients) {
  if (guard_ == nullptr) return true;
  std::vector<Tensor> own;
  for (const auto& [name, gradient] : gradients) own.push_back(gradient);
  guard_->inspect(own);
  if (in_step()) agree_on_overflow(*guard_, context_.communicator, patience());
  return !guard_->found_any();
}

NamedTensors ServerStrategy::values() const {
  NamedTensors parts;
  for (const server::ParameterKey& key : keys_)
    parts.emplace_back(key.name, key.part_of(parameters_[key.parameter].second));
  return parts;
}

void ServerStrategy::pull(const Deadline& deadline) {
  const NoGrad no_grad;
  store_.pull(values(), deadline);
  for (const auto& [name, tensor] : parameters_) tensor.mark_modified();
}

// Asynchronous: what rank 0 evaluates and saves has its own running statistics, and nobody is waited for.
void ServerStrategy::sync_state(const Deadline& deadline) {
  if (in_step()) copy_from_first_rank(context_.communicator, network_->named_buffers(), deadline);
}

Tensors ServerStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  return passes_.evaluate(inputs, hooks_);
}

RankState ServerStrategy::held() {
  if (!begun_) return {whole(network_->state_dict()), {}};
  const NoGrad no_grad;
  std::vector<NamedTensors> states;
  for (int i = 0; i < store_.servers(); ++i) {
    ServerState held = store_.state(i, patience());
    if (i == 0) applied_ = held.applied;
    for (const server::ParameterKey& key : keys_) {
      for (const auto& [name, value] : held.values) {
        if (name != key.name) continue;
        Tensor own = key.part_of(parameters_[key.parameter].second).detach();
        own.copy_from(value.to(own.shared_device()));
      }
    }
    states.push_back(std::move(held.state));
  }
  for (const auto& [name, tensor] : parameters_) tensor.mark_modified();
  return {whole(network_->state_dict()), whole(server::state_of_parameters(keys_, parameters_, states))};
}

Replicas ServerStrategy::replicas() {
  if (!in_step()) return {};
  return {&context_.communicator, network_->named_parameters()};
}

void ServerStrategy::exchange_alone(const Deadline& deadline) { pull(deadline); }

void ServerStrategy::finish(const Deadline& deadline) {
  store_.finish(deadline);
  if (!is_root()) return;
  store_.wait_for_others(deadline);
  pull(deadline);
}

std::optional<UpdateDelays> ServerStrategy::delays() {
  return is_root() ? std::optional(store_.delays(patience())) : std::nullopt;
}

}  // namespace dtrain
