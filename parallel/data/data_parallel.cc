#include "parallel/data/data_parallel.h"

#include "parallel/data/equal_start.h"
#include "runtime/base/error.h"
#include "runtime/device/between.h"

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
  for (NamedTensor& parameter : module.named_parameters()) {
    if (!parameter.second.requires_grad()) continue;
    if (!home_) home_ = parameter.second.shared_device();
    const bool away = !share_memory(parameter.second.device(), *home_);
    (away && !shares ? alone_ : parameters_).push_back(std::move(parameter));
  }
  if (parameters_.empty() && alone_.empty())
    throw UsageError("data parallel: the module has no parameter that requires a gradient");
  reducer_ = std::make_unique<Reducer>(communicator_, home_, slots(), options_);
  brought_.resize(parameters_.size());
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
  return slots;
}

std::unique_ptr<Reducer> DataParallel::make_idle_reducer() const {
  return std::make_unique<Reducer>(communicator_, home_, slots(), options_);
}

void DataParallel::attach(std::size_t index) {
  Tensor& parameter = parameters_[index].second;
  gradients_.emplace_back(parameter, home_);
  gradients_.back().place(reducer_->gradient(index), reducer_->memory_of(index));
  // A part of the graph that turned out not to use the parameter reports it too, with nothing in the bucket.
  parameter.on_grad_ready([this, index] {
    if (!parameters_[index].second.grad().defined()) return;
    if (reducer_->sync()) bring(index);
    reducer_->mark_ready(index);
  });
}

void DataParallel::bring(std::size_t index) {
  gradients_[index].bring();
  brought_[index] = true;
}

void DataParallel::sync_buffers(const Deadline& deadline) {
  copy_from_first_rank(communicator_, buffers_, deadline);
}

void DataParallel::finish(const Deadline& deadline) {
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    // What only passes before the last one used.
    if (!brought_[index] && parameters_[index].second.grad().defined()) bring(index);
    brought_[index] = false;
  }
  reducer_->finish(deadline);
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    gradients_[index].take_back();
    if (!reducer_->was_used(index)) gradients_[index].give();
  }
  for (auto& [name, parameter] : alone_) {
    if (!parameter.grad().defined()) parameter.set_grad(Tensor::zeros_like(parameter));
  }
}

}  // namespace dtrain
