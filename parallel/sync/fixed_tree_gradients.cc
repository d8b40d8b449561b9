#include "parallel/sync/fixed_tree_gradients.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {

FixedTreeGradients::FixedTreeGradients(Communicator& communicator, std::shared_ptr<Device> device,
                                       const Module& network, int parts, const BucketOptions& buckets)
    : communicator_(communicator),
      device_(std::move(device)),
      parts_(parts),
      buckets_(buckets),
      parameters_(trainable_parameters(network)),
      used_(parameters_.size()) {
  if (parameters_.empty())
    throw UsageError("virtual workers: the module has no parameter that requires a gradient");
  reducer_ = make_reducer();
  for (std::size_t index = 0; index < parameters_.size(); ++index) attach(index);
}

FixedTreeGradients::~FixedTreeGradients() {
  // The tensors may outlive us; their gradients keep the buckets' memory, but nothing calls us any more.
  for (NamedTensor& parameter : parameters_) parameter.second.on_grad_ready({});
}

std::unique_ptr<FixedTreeReducer> FixedTreeGradients::make_reducer() const {
  std::vector<GradientSlot> slots;
  for (const auto& [name, tensor] : parameters_)
    slots.push_back({name, static_cast<std::size_t>(tensor.numel()), tensor.dtype(), tensor.shape()});
  slots.insert(slots.begin(), used_slot(slots));
  return std::make_unique<FixedTreeReducer>(communicator_, device_, std::move(slots), parts_, buckets_);
}

void FixedTreeGradients::attach(std::size_t index) {
  gradients_.emplace_back(parameters_[index].second, device_);
  parameters_[index].second.on_grad_ready([this, index] {
    if (!exchanging_ || !parameters_[index].second.grad().defined()) return;
    gradients_[index].copy_in();
    reducer_->mark_ready(slot_of(index));
  });
}

void FixedTreeGradients::begin_part(bool exchange) {
  for (NamedTensor& parameter : parameters_) parameter.second.zero_grad();
  for (std::size_t index = 0; index < gradients_.size(); ++index)
    gradients_[index].bind_view(reducer_->gradient(slot_of(index)), reducer_->memory_of(slot_of(index)));
  exchanging_ = exchange;
  if (exchange) reducer_->begin_pass();
}

void FixedTreeGradients::end_part() {
  if (exchanging_) {
    announce_used();
    reducer_->end_pass();
  }
  exchanging_ = false;
}

void FixedTreeGradients::announce_used() {
  UsedParameters used;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    used.push_back(parameters_[index].second.grad().defined());
    used_[index] = used_[index] || used[index];
  }
  write_used(device_->kernels(), reducer_->gradient(0), used);
  reducer_->mark_ready(0);
}

UsedParameters FixedTreeGradients::used_by_any() const {
  const bool used_all = std::ranges::find(used_, false) == used_.end();
  return used_all || communicator_.size() == 1 ? used_ : read_used(device_, reducer_->gradient(0));
}

void FixedTreeGradients::finish(const Deadline& deadline) { reducer_->finish(deadline); }

void FixedTreeGradients::assign() {
  const UsedParameters used = used_by_any();
  for (std::size_t index = 0; index < gradients_.size(); ++index) {
    if (used[index]) {
      gradients_[index].copy_out();
      gradients_[index].assign();
    } else {
      parameters_[index].second.zero_grad();
    }
  }
  used_.assign(used_.size(), false);
}

void FixedTreeGradients::exchange_alone(const Deadline& deadline) {
  if (!idle_) idle_ = make_reducer();
  for (int part = 0; part < idle_->run().count(); ++part) {
    idle_->begin_pass();
    idle_->end_pass();
  }
  idle_->finish(deadline);
}

void FirstPassBuffers::after_forward(const Module& network, std::size_t part, std::size_t count) {
  if (part > 0 || count == 1) return;
  buffers_ = network.named_buffers();
  after_first_.clear();
  for (const auto& [name, tensor] : buffers_) after_first_.emplace_back(name, tensor.detach().clone());
}

void FirstPassBuffers::put_back() {
  for (std::size_t i = 0; i < after_first_.size(); ++i) buffers_[i].second.copy_from(after_first_[i].second);
  after_first_.clear();
}

}  // namespace dtrain
