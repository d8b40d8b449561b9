#include "parallel/data/data_parallel.h"

#include <fmt/format.h>

#include "parallel/data/equal_start.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
DataParallel::DataParallel(Communicator& communicator, Module& module, const Deadline& deadline,
                           ReducerOptions options)
    : communicator_(communicator),
      options_(std::move(options)),
      state_(module.state_dict()),
      buffers_(module.named_buffers()) {
  check_same_model(communicator_, state_, deadline);
  copy_from_first_rank(communicator_, state_, deadline);
  std::shared_ptr<Device> device;
  for (NamedTensor& parameter : module.named_parameters()) {
    const Tensor& tensor = parameter.second;
    if (!tensor.requires_grad()) continue;
    // CPUs share the host's memory, so that buckets of one hold gradients of all.
    const bool on_host = tensor.device().type() == DeviceType::cpu;
    if (device && device != tensor.shared_device() && !(on_host && device->type() == DeviceType::cpu)) {
      throw UsageError(fmt::format(
          "data parallel: parameter '{}' is on {}, the ones before it on {}; expected one GPU, or CPUs",
          parameter.first, tensor.device().name(), device->name()));
    }
    if (!device) device = tensor.shared_device();
    parameters_.push_back(std::move(parameter));
  }
  if (parameters_.empty())
    throw UsageError("data parallel: the module has no parameter that requires a gradient");
  reducer_ = std::make_unique<Reducer>(communicator_, device, slots(), options_);
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
  return std::make_unique<Reducer>(communicator_, parameters_.front().second.shared_device(), slots(),
                                   options_);
}

// The gradient has the strides of a dense tensor of the parameter's shape in the parameter's own memory
// order.
void DataParallel::attach(std::size_t index) {
  Tensor& parameter = parameters_[index].second;
  View view = reducer_->gradient(index);
  view.shape = parameter.shape();
  view.strides = parameter.is_contiguous() ? contiguous_strides(view.shape) : parameter.strides();
  gradients_.push_back(Tensor::borrow(view, parameter.shared_device(), reducer_->memory_of(index)));
  parameter.set_grad_storage(gradients_.back());
  // A part of the graph that turned out not to use the parameter reports it too, with nothing in the bucket.
  parameter.on_grad_ready([this, index] {
    if (parameters_[index].second.grad().defined()) reducer_->mark_ready(index);
  });
}

void DataParallel::sync_buffers(const Deadline& deadline) {
  copy_from_first_rank(communicator_, buffers_, deadline);
}

void DataParallel::finish(const Deadline& deadline) {
  reducer_->finish(deadline);
  const NoGrad no_grad;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    gradients_[index].mark_modified();
    if (!reducer_->was_used(index)) parameters_[index].second.set_grad(gradients_[index]);
  }
}

}  // namespace dtrain
