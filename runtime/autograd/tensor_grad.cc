// The autograd members of Tensor. They are defined here because tensor/ does not know the tape.
#include <string>
#include <utility>

#include "runtime/autograd/backward_pass.h"
#include "runtime/autograd/gradients.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

/// The state of a leaf, made if it has none.
GradState& leaf_state(std::string_view what, Tensor& tensor) {
  auto state = grad_state(tensor);
  if (state == nullptr) {
    state = std::make_shared<GradState>();
    state->format = tensor.memory_format();
    tensor.attach(state);
  }
  if (state->node != nullptr) {
    throw UsageError(std::string(what) + ": " + tensor.describe() + " was computed by " +
                     std::string(state->node->name()) + "; only leaves have one (detach() makes a leaf)");
  }
  return *state;
}

void check_like(std::string_view what, const Tensor& tensor, const Tensor& like) {
  if (tensor.shape() != like.shape() || tensor.dtype() != like.dtype() ||
      tensor.shared_device() != like.shared_device()) {
    throw UsageError(std::string(what) + ": expected " + like.describe() + " on the tensor's device, got " +
                     tensor.describe());
  }
}

/// Checks that backward can start at `root`, and gives the seed to start with.
Tensor seed_for(std::string_view what, const Tensor& root, const Tensor& seed) {
  if (!root.requires_grad()) {
    throw UsageError(std::string(what) + ": " + root.describe() +
                     " does not depend on anything that requires a gradient, or was computed under NoGrad");
  }
  if (seed.defined()) {
    check_like(what, seed, root);
    return seed;
  }
  if (root.numel() != 1) {
    throw UsageError(std::string(what) + ": " + root.describe() +
                     " has more than one element; pass the gradient to start from");
  }
  return Tensor::ones(root.shape(), root.shared_device(), root.dtype());
}

}  // namespace

bool Tensor::requires_grad() const noexcept {
  const auto& state = autograd_state();
  return state != nullptr && static_cast<const GradState&>(*state).requires_grad;
}

Tensor Tensor::set_requires_grad(bool value) {
  if (value && !is_floating(dtype())) {
    throw UsageError("set_requires_grad: gradients need a floating dtype, got " + describe());
  }
  if (value != requires_grad()) leaf_state("set_requires_grad", *this).requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const noexcept {
  const auto& state = autograd_state();
  return state == nullptr || static_cast<const GradState&>(*state).node == nullptr;
}

Tensor Tensor::grad() const {
  const auto state = grad_state(*this);
  return state == nullptr ? Tensor() : state->grad;
}

void Tensor::set_grad(const Tensor& grad) {
  check_like("set_grad", grad, *this);
  GradState& state = leaf_state("set_grad", *this);
  if (!state.grad_storage.defined()) {
    state.grad = grad.detach().contiguous(state.format);
    return;
  }
  const NoGrad no_grad;
  if (grad.view().data != state.grad_storage.view().data) state.grad_storage.copy_from(grad);
  state.grad = state.grad_storage;
}

void Tensor::zero_grad() {
  if (const auto state = grad_state(*this)) state->grad = Tensor();
}

void Tensor::move_to(const std::shared_ptr<Device>& target) {
  if (target == nullptr) throw UsageError("move_to: expected a device, got null");
  if (target == shared_device()) return;
  check_movable("move_to", *this);
  const NoGrad no_grad;
  const auto before = grad_state(*this);
  const Tensor moved = detach().to(target);
  std::shared_ptr<GradState> state;
  if (before != nullptr) {
    state = std::make_shared<GradState>(*before);
    if (before->grad.defined()) state->grad = before->grad.detach().to(target);
    before->has_moved = true;
    before->grad = Tensor();
  }
  moved.body_->storage->replace(*body_->storage);
  body_->storage = moved.body_->storage;
  body_->view = moved.body_->view;
  body_->offset = moved.body_->offset;
  body_->autograd = std::move(state);
}

void Tensor::backward(BackwardOptions options) const { backward_from(Tensor(), options); }

void Tensor::backward_from(const Tensor& grad, BackwardOptions options) const {
  const BackwardPass::Root root{*this, seed_for("backward", *this, grad)};
  BackwardPass(options).run({&root, 1});
}

void Tensor::set_grad_storage(const Tensor& storage) {
  GradState& state = leaf_state("set_grad_storage", *this);
  if (storage.defined()) {
    check_like("set_grad_storage", storage, *this);
    if (!storage.is_contiguous()) {
      throw UsageError("set_grad_storage: expected dense row-major memory, got strides " +
                       storage.strides().to_string());
    }
  }
  const NoGrad no_grad;
  const Tensor before = std::exchange(state.grad, Tensor());
  state.grad_storage = storage.defined() ? storage.detach() : Tensor();
  // The owner that takes the memory back may reuse it, so a gradient that stays must leave it.
  if (before.defined()) set_grad(storage.defined() ? before : before.clone());
}

void Tensor::on_grad_ready(std::function<void()> ready) {
  leaf_state("on_grad_ready", *this).ready = std::move(ready);
}

void check_movable(std::string_view name, const Tensor& tensor) {
  const auto state = grad_state(tensor);
  const auto refuse = [&](const std::string& why) {
    throw UsageError(std::string(name) + ": " + tensor.describe() + " cannot move from " +
                     tensor.device().name() + ": " + why);
  };
  if (!tensor.is_leaf())
    refuse("it was computed by " + std::string(state->node->name()) + "; use to(), which makes a copy");
  if (tensor.shared_storage()->had_hook())
    refuse("its memory is divided among ranks; move the network before it is divided");
  if (state != nullptr && state->grad_storage.defined())
    refuse("its gradient lives in memory of data-parallel training; move the network before that begins");
}

void check_in_place(std::string_view name, const Tensor& target, const Tensor& source) {
  if (!grad_enabled() || !(target.requires_grad() || source.requires_grad())) return;
  throw UsageError(std::string(name) + ": " + target.describe() +
                   " cannot be modified in place while gradients are recorded, because " +
                   (target.requires_grad() ? "it" : "the source") +
                   " requires one; use NoGrad, detach(), or an operation that makes a new tensor");
}

std::vector<Tensor> gradients(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                              std::span<const Tensor> seeds, BackwardOptions options) {
  if (seeds.size() != outputs.size()) {
    throw UsageError("gradients: expected a seed for each of " + std::to_string(outputs.size()) +
                     " outputs, got " + std::to_string(seeds.size()));
  }
  std::vector<BackwardPass::Root> roots;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    roots.push_back({outputs[i], seed_for("gradients", outputs[i], seeds[i])});
  }
  BackwardPass pass(options);
  pass.capture(inputs);
  pass.run(roots);
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) results.push_back(pass.captured(i));
  return results;
}

std::vector<Tensor> gradients(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed,
                              BackwardOptions options) {
  return gradients({&output, 1}, inputs, {&seed, 1}, options);
}

}  // namespace dtrain
