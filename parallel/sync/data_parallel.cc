#include "parallel/sync/data_parallel.h"

#include <algorithm>

#include "parallel/sync/equal_start.h"
#include "runtime/base/error.h"
#include "runtime/device/between.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
DataParallel::DataParallel(Communicator& communicator, Module& module, const Deadline& deadline,
                           ReducerOptions options)
    : communicator_(communicator),
      options_(std::move(options)),
      state_(module.state_dict()),
      buffers_(module.named_buffers()) {
  check_same_model(communicator_, state_, deadline);
  copy_from_first_rank(communicator_, state_, deadline);
  home_ = options_.device;
  const bool shares = communicator_.size() > 1 || options_.exchange != nullptr;
  for (NamedTensor& parameter : trainable_parameters(module)) {
    if (!home_) home_ = parameter.second.shared_device();
    const bool away = !share_memory(parameter.second.device(), *home_);
    (away && !shares ? alone_ : parameters_).push_back(std::move(parameter));
  }
  if (parameters_.empty() && alone_.empty())
    throw UsageError("data parallel: the module has no parameter that requires a gradient");
  if (!parameters_.empty())
    options_.owner = "the module with " + parameters_.front().first + " to " + parameters_.back().first;
  reducer_ = std::make_unique<Reducer>(communicator_, home_, slots(), options_);
  copied_in_.resize(parameters_.size());
  used_.resize(parameters_.size());
  for (std::size_t index = 0; index < parameters_.size(); ++index) attach(index);
}

DataParallel::~DataParallel() {
  // The tensors may outlive us; their gradients keep the bucket's memory, but nothing calls us any more.
  for (NamedTensor& parameter : parameters_) parameter.second.on_grad_ready({});
}

std::vector<GradientSlot> DataParallel::slots() const {
  std::vector<GradientSlot> slots;
  for (const auto& [name, tensor] : parameters_)
    slots.push_back({name, static_cast<std::size_t>(tensor.numel()), tensor.dtype(), tensor.shape()});
  if (!slots.empty()) slots.insert(slots.begin(), used_slot(slots));
  return slots;
}

std::unique_ptr<Reducer> DataParallel::make_idle_reducer() const {
  return std::make_unique<Reducer>(communicator_, home_, slots(), options_);
}

void DataParallel::attach(std::size_t index) {
  Tensor& parameter = parameters_[index].second;
  gradients_.emplace_back(parameter, home_);
  gradients_.back().bind_view(reducer_->gradient(slot_of(index)), reducer_->memory_of(slot_of(index)));
  // A part of the graph that turned out not to use the parameter reports it too, with nothing in the bucket.
  parameter.on_grad_ready([this, index] {
    if (parameters_[index].second.grad().defined()) take(index);
  });
}

void DataParallel::take(std::size_t index) {
  if (reducer_->sync()) copy_in(index);
  reducer_->mark_ready(slot_of(index));
  if (!reducer_->sync() || ++ready_ < parameters_.size()) return;
  used_.assign(used_.size(), true);
  announce_used();
}

void DataParallel::copy_in(std::size_t index) {
  gradients_[index].copy_in();
  copied_in_[index] = true;
}

void DataParallel::announce_used() {
  write_used(home_->kernels(), reducer_->gradient(0), used_);
  reducer_->mark_ready(0);
  announced_ = true;
}

UsedParameters DataParallel::used_by_any() {
  const bool used_all = std::ranges::find(used_, false) == used_.end();
  asked_peers_ = !used_all && communicator_.size() > 1;
  return asked_peers_ ? read_used(home_, reducer_->gradient(0)) : used_;
}

void DataParallel::sync_buffers(const Deadline& deadline) {
  copy_from_first_rank(communicator_, buffers_, deadline);
}

void DataParallel::finish(const Deadline& deadline) {
  if (parameters_.empty()) return;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    // What only passes before the last one used.
    used_[index] = parameters_[index].second.grad().defined();
    if (!copied_in_[index] && used_[index]) copy_in(index);
    copied_in_[index] = false;
  }
  if (!announced_) announce_used();
  reducer_->finish(deadline);
  const UsedParameters used = used_by_any();
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!used[index]) continue;
    gradients_[index].copy_out();
    if (!used_[index]) gradients_[index].assign();
  }
  ready_ = 0;
  announced_ = false;
}

}  // namespace dtrain
