#include "runtime/optim/optimizer.h"

#include <cmath>
#include <unordered_set>

#include "runtime/base/error.h"

namespace dtrain {

Optimizer::Optimizer(NamedTensors parameters, double lr) : parameters_(std::move(parameters)), lr_(0) {
  set_lr(lr);
  if (parameters_.empty()) throw UsageError("optimizer: expected at least one parameter, got none");
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    if (!names.insert(name).second) throw UsageError("optimizer: parameter \"" + name + "\" is given twice");
    if (!tensor.requires_grad() || !tensor.is_leaf() || !tensor.is_contiguous()) {
      throw UsageError("optimizer: parameter \"" + name +
                       "\" must be a dense leaf that requires a gradient, got " + tensor.describe());
    }
  }
}

void Optimizer::zero_grad() {
  for (auto& [name, tensor] : parameters_) tensor.zero_grad();
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> gradients;
  for (const auto& [name, tensor] : parameters_) gradients.push_back(tensor.grad());
  return gradients;
}

void Optimizer::step() {
  update();
  ++steps_;
}

void Optimizer::begin_recording() {
  if (steps_ == 0) throw UsageError("optimizer: expected at least one step before one is recorded, got none");
  if (!changes_.defined()) {
    changes_ = Tensor::zeros({2}, parameters_.front().second.shared_device(), DType::f64);
  }
  recorded_step_ = steps_ + 1;
  recording_ = true;
}

void Optimizer::prepare_replay() {
  changes_.select(0, 0).fill(lr_);
  changes_.select(0, 1).fill(static_cast<double>(steps_ - recorded_step_));
}

void Optimizer::count_replay() {
  count_step();
  ++steps_;
}

StepChanges Optimizer::changes() const { return recording_ ? StepChanges{changes_.view()} : StepChanges{}; }

void Optimizer::set_lr(double lr) {
  if (!std::isfinite(lr) || lr < 0) {
    throw UsageError("optimizer: lr must be finite and at least 0, got " + std::to_string(lr));
  }
  lr_ = lr;
}

void Optimizer::set_gate(const Tensor& skip, const Tensor& skipped) {
  if (skip.dtype() != DType::f32 || skip.numel() != 1 || skipped.dtype() != DType::i64 ||
      skipped.numel() != 1) {
    throw UsageError("optimizer: expected a gate of float32 [1] and int64 [1], got " + skip.describe() +
                     " and " + skipped.describe());
  }
  skip_ = skip;
  skipped_ = skipped;
}

StepGate Optimizer::gate() const {
  if (!skip_.defined()) return {};
  return {skip_.view(), skipped_.view()};
}

std::int64_t Optimizer::skipped_steps() const {
  return skipped_.defined() ? skipped_.to_vector<std::int64_t>()[0] : 0;
}

}  // namespace dtrain
