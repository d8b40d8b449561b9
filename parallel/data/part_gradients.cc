#include "parallel/data/part_gradients.h"

#include "runtime/base/error.h"

namespace dtrain {

PartGradients::PartGradients(Communicator& communicator, std::shared_ptr<Device> device,
                             const Module& network, int parts, const BucketOptions& buckets)
    : communicator_(communicator), device_(std::move(device)), parts_(parts), buckets_(buckets) {
  for (NamedTensor& parameter : network.named_parameters()) {
    if (parameter.second.requires_grad()) parameters_.push_back(std::move(parameter));
  }
  if (parameters_.empty())
    throw UsageError("virtual workers: the module has no parameter that requires a gradient");
  reducer_ = make_reducer();
  for (std::size_t index = 0; index < parameters_.size(); ++index) attach(index);
}

PartGradients::~PartGradients() {
  // The tensors may outlive us; their gradients keep the buckets' memory, but nothing calls us any more.
  for (NamedTensor& parameter : parameters_) parameter.second.on_grad_ready({});
}

std::unique_ptr<TreeReducer> PartGradients::make_reducer() const {
  std::vector<GradientSlot> slots;
  for (const auto& [name, tensor] : parameters_)
    slots.push_back({name, static_cast<std::size_t>(tensor.numel()), tensor.dtype(), tensor.shape()});
  return std::make_unique<TreeReducer>(communicator_, device_, std::move(slots), parts_, buckets_);
}

void PartGradients::attach(std::size_t index) {
  gradients_.emplace_back(parameters_[index].second, device_);
  parameters_[index].second.on_grad_ready([this, index] {
    if (!exchanging_ || !parameters_[index].second.grad().defined()) return;
    gradients_[index].bring();
    reducer_->mark_ready(index);
  });
}

void PartGradients::begin_part(bool exchange) {
  for (NamedTensor& parameter : parameters_) parameter.second.zero_grad();
  for (std::size_t index = 0; index < gradients_.size(); ++index)
    gradients_[index].place(reducer_->gradient(index), reducer_->memory_of(index));
  exchanging_ = exchange;
  if (exchange) reducer_->begin_pass();
}

void PartGradients::end_part() {
  if (exchanging_) reducer_->end_pass();
  exchanging_ = false;
}

void PartGradients::finish(const Deadline& deadline) { reducer_->finish(deadline); }

void PartGradients::give() {
  for (BucketGradient& gradient : gradients_) {
    gradient.take_back();
    gradient.give();
  }
}

void PartGradients::exchange_alone(const Deadline& deadline) {
  if (!idle_) idle_ = make_reducer();
  for (int part = 0; part < idle_->run().count(); ++part) {
    idle_->begin_pass();
    idle_->end_pass();
  }
  idle_->finish(deadline);
}

void FirstPartMemory::after_forward(const Module& network, std::size_t part, std::size_t count) {
  if (part > 0 || count == 1) return;
  buffers_ = network.named_buffers();
  after_first_.clear();
  for (const auto& [name, tensor] : buffers_) after_first_.emplace_back(name, tensor.detach().clone());
}

void FirstPartMemory::put_back() {
  for (std::size_t i = 0; i < after_first_.size(); ++i) buffers_[i].second.copy_from(after_first_[i].second);
  after_first_.clear();
}

}  // namespace dtrain
