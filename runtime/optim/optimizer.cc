#include "runtime/optim/optimizer.h"

#include <cmath>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/device/between.h"
#include "runtime/optim/device_groups.h"
#include "runtime/tensor/checks.h"

namespace dtrain {

namespace {

void check_lr(double lr) {
  if (std::isfinite(lr) && lr >= 0) return;
  throw UsageError("optimizer: lr must be finite and at least 0, got " + std::to_string(lr));
}

}  // namespace

void Optimizer::add_group(const NamedTensors& parameters, double lr) {
  check_lr(lr);
  if (parameters.empty()) {
    throw UsageError("optimizer: expected at least one parameter in group " + std::to_string(groups_.size()) +
                     ", got none");
  }
  const std::size_t begin = parameters_.size();
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
  groups_.push_back({begin, parameters_.size(), lr, lr});
}

void Optimizer::check_parameters() const {
  if (groups_.empty()) throw UsageError("optimizer: expected at least one group of parameters, got none");
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    if (!names.insert(name).second) throw UsageError("optimizer: parameter \"" + name + "\" is given twice");
    if (!tensor.is_leaf() || !tensor.is_contiguous()) {
      throw UsageError("optimizer: parameter \"" + name + "\" must be a dense leaf, got " +
                       tensor.describe());
    }
  }
}

void Optimizer::find_device_groups() {
  DeviceGroups found;
  for (const auto& [name, tensor] : parameters_)
    device_group_of_.push_back(found.find(tensor.shared_device()));
  for (const auto& device : found.devices()) device_groups_.push_back({device, {}, {}});
}

void Optimizer::follow_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    const Device& before = *device_groups_[device_group_of_[i]].device;
    if (share_memory(before, tensor.device())) continue;
    if (skip_.defined() || changes_.defined() || !named_state().empty()) {
      throw UsageError("optimizer: parameter \"" + name + "\" has moved from " + before.name() + " to " +
                       tensor.device().name() +
                       ", where the optimizer has no state; after Module::to() make a new optimizer and give "
                       "it load_state() of this one's named_state()");
    }
    device_group_of_.clear();
    device_groups_.clear();
    return find_device_groups();
  }
}

const Optimizer::Group& Optimizer::group_at(std::size_t index) const {
  if (index < groups_.size()) return groups_[index];
  throw UsageError("optimizer: expected a group below " + std::to_string(groups_.size()) + ", got " +
                   std::to_string(index));
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
  follow_parameters();
  hand_out_gate();
  update();
  gather_gate();
  ++steps_;
}

void Optimizer::begin_recording() {
  if (steps_ == 0) throw UsageError("optimizer: expected at least one step before one is recorded, got none");
  if (device_groups_.size() > 1) {
    throw UsageError(
        "optimizer: expected parameters on one device for a step that is recorded, got them on " +
        std::to_string(device_groups_.size()));
  }
  if (!changes_.defined()) {
    const auto rows = static_cast<std::int64_t>(groups_.size());
    changes_ = Tensor::zeros({rows, 2}, parameters_.front().second.shared_device(), DType::f64);
  }
  recorded_step_ = steps_ + 1;
  recording_ = true;
}

void Optimizer::prepare_replay() {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Tensor row = changes_.select(0, static_cast<std::int64_t>(i));
    row.select(0, 0).fill(groups_[i].lr);
    row.select(0, 1).fill(static_cast<double>(steps_ - recorded_step_));
  }
}

void Optimizer::count_replay() {
  count_step();
  ++steps_;
}

StepChanges Optimizer::changes(std::size_t group) const {
  if (!recording_) return {};
  return {changes_.select(0, static_cast<std::int64_t>(group)).view()};
}

void Optimizer::set_lr(std::size_t group, double lr) {
  group_at(group);
  check_lr(lr);
  groups_[group].lr = lr;
}

void Optimizer::set_lr(double lr) {
  check_lr(lr);
  for (Group& group : groups_) group.lr = lr;
}

void Optimizer::set_gate(const Tensor& skip, const Tensor& skipped) {
  const bool counts = skipped.defined();
  if (skip.dtype() != DType::f32 || skip.numel() < 1 || skip.numel() > 2 ||
      (counts && (skipped.dtype() != DType::i64 || skipped.numel() != 1))) {
    throw UsageError("optimizer: expected a gate of float32 [1] or [2] and int64 [1], got " +
                     skip.describe() + (counts ? " and " + skipped.describe() : ""));
  }
  if (counts) check_same_device("optimizer: gate", skip, skipped);
  skip_ = skip;
  skipped_ = skipped;
  for (DeviceGroup& device_group : device_groups_) {
    const bool is_here = share_memory(*device_group.device, skip.device());
    device_group.skip = is_here ? skip : Tensor::empty(skip.shape(), device_group.device);
    if (counts)
      device_group.skipped = is_here ? skipped : Tensor::empty({1}, device_group.device, DType::i64);
  }
}

void Optimizer::hand_out_gate() {
  if (!skip_.defined()) return;
  for (DeviceGroup& device_group : device_groups_) {
    if (share_memory(*device_group.device, skip_.device())) continue;
    device_group.skip.copy_across(skip_);
    if (skipped_.defined()) device_group.skipped.copy_across(skipped_);
  }
}

void Optimizer::gather_gate() {
  if (!skip_.defined() || skip_.numel() < 2) return;
  for (const DeviceGroup& device_group : device_groups_) {
    if (share_memory(*device_group.device, skip_.device())) continue;
    const Tensor there = device_group.skip.to(skip_.shared_device());
    skip_.device().kernels().binary(BinaryOp::max, skip_.view(), there.view(), skip_.view());
  }
}

std::int64_t Optimizer::skipped_steps() const {
  return skipped_.defined() ? skipped_.to_vector<std::int64_t>()[0] : 0;
}

}  // namespace dtrain
