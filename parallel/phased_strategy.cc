#include "parallel/phased_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

/// The network as a phase sees it: with all its layers, under their names. In evaluation it is the network's
/// own forward.
class PhaseModule final : public MultiModule {
 public:
  PhaseModule(const std::shared_ptr<Module>& network, const ModelPhase& phase)
      : network_(network), forward_(phase.forward) {
    for (const auto& [name, tensor] : network->own_parameters()) {
      const bool learns = tensor.requires_grad();
      add_parameter(name, tensor).set_requires_grad(learns);
    }
    for (const auto& [name, tensor] : network->named_buffers()) {
      if (name.find('.') == std::string::npos) add_buffer(name, tensor);
    }
    for (const auto& [name, child] : network->children()) add_module(name, child);
  }

  Tensors forward_all(const Tensors& inputs) override {
    return forward_ && network_->is_training() ? forward_(*network_, inputs) : (*network_)(inputs);
  }

 private:
  std::shared_ptr<Module> network_;
  std::function<Tensors(Module& network, const Tensors& inputs)> forward_;
};

StrategyTraits phased(StrategyTraits traits) {
  traits.name = "phases";
  return traits;
}

}  // namespace

PhasedStrategy::PhasedStrategy(std::vector<std::unique_ptr<Strategy>> parts)
    : Strategy(phased(parts.front()->traits())), parts_(std::move(parts)) {}

// Strategies let go of the tensors first.
PhasedStrategy::~PhasedStrategy() { parts_.clear(); }

void PhasedStrategy::prepare(const ModelFactory& factory, const Deadline& deadline) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    ModelFactory own = factory;
    own.phases.clear();
    own.shares_checkpoint = true;
    own.build = [&, i](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
      if (!network_) {
        network_ = factory.build(device);
        find_members(factory);
      }
      begin_phase(i);
      return std::make_unique<PhaseModule>(network_, factory.phases[i]);
    };
    const OptimizerFactory make =
        factory.phases[i].make_optimizer ? factory.phases[i].make_optimizer : factory.make_optimizer;
    own.make_optimizer = [this, i, make](const NamedTensors& parameters) {
      NamedTensors here;
      std::ranges::copy_if(parameters, std::back_inserter(here),
                           [&](const NamedTensor& one) { return members_[i].contains(one.first); });
      return make(here);
    };
    parts_[i]->prepare(own, deadline);
  }
  end_phases();
  std::vector<Optimizer*> optimizers;
  for (const auto& part : parts_) optimizers.push_back(part->optimizer());
  set_prepared(*network_, std::move(optimizers));
}

void PhasedStrategy::find_members(const ModelFactory& factory) {
  const NamedTensors all = parameters_by_all_names(*network_);
  std::set<std::string> taken;
  for (const ModelPhase& phase : factory.phases) {
    std::set<std::string>& members = members_.emplace_back();
    const std::string what = fmt::format("phase {}", phase.name);
    for (const std::string& pattern : phase.parameters) {
      for (std::string& name : names_that_match(what, pattern, all)) members.insert(std::move(name));
    }
    std::size_t learning = 0;
    for (const NamedTensor& parameter : trainable_parameters(*network_)) {
      if (!members.contains(parameter.first)) continue;
      ++learning;
      if (!taken.insert(parameter.first).second)
        throw UsageError(fmt::format(
            "{}: expected parameters that no other phase updates, got {}, which one before it does; "
            "give each parameter to one phase",
            what, parameter.first));
      parameters_.push_back(parameter);
    }
    if (learning == 0)
      throw UsageError(fmt::format(
          "{}: expected at least one parameter that is trained, got none; all that it names are frozen",
          what));
  }
}

void PhasedStrategy::begin_phase(std::size_t phase) {
  for (NamedTensor& parameter : network_->named_parameters()) parameter.second.set_requires_grad(false);
  for (NamedTensor& parameter : parameters_)
    parameter.second.set_requires_grad(members_[phase].contains(parameter.first));
}

void PhasedStrategy::end_phases() {
  for (NamedTensor& parameter : parameters_) parameter.second.set_requires_grad(true);
}

void PhasedStrategy::load(const CheckpointFiles& state, const Deadline& deadline) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    begin_phase(i);
    parts_[i]->load(state, deadline);
  }
  end_phases();
}

void PhasedStrategy::begin(const Deadline& deadline) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    begin_phase(i);
    parts_[i]->begin(deadline);
  }
  end_phases();
}

void PhasedStrategy::step(MicroBatches& passes, Exchange exchange) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    begin_phase(i);
    passes.begin_phase(i);
    parts_[i]->step(passes, exchange);
  }
  end_phases();
}

void PhasedStrategy::sync_state(const Deadline& deadline) {
  for (const auto& part : parts_) part->sync_state(deadline);
}

// Each phase has the whole network, and the state of its own optimizer.
RankState PhasedStrategy::held() {
  begin_phase(0);
  RankState held = parts_.front()->held();
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    begin_phase(i);
    for (NamedShard& shard : parts_[i]->held().optimizer) held.optimizer.push_back(std::move(shard));
  }
  end_phases();
  return held;
}

Replicas PhasedStrategy::replicas() {
  Replicas all = parts_.front()->replicas();
  std::set<std::string> names;
  for (const auto& [name, tensor] : all.tensors) names.insert(name);
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    for (NamedTensor& tensor : parts_[i]->replicas().tensors) {
      if (names.insert(tensor.first).second) all.tensors.push_back(std::move(tensor));
    }
  }
  return all;
}

void PhasedStrategy::exchange_alone(const Deadline& deadline) {
  for (const auto& part : parts_) part->exchange_alone(deadline);
}

}  // namespace dtrain
