#include "runtime/autograd/backward_pass.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

/// What identifies a tensor in the graph: the operation that made it, or the leaf itself.
const void* key_of(const GradState& state) {
  return state.node != nullptr ? static_cast<const void*>(state.node.get()) : &state;
}

bool is_dense(const Tensor& tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(MemoryFormat::channels_last);
}

/// `grad` as memory of `format` that a leaf may keep and add to.
Tensor own(Tensor grad, MemoryFormat format) {
  if (!grad.is_contiguous(format)) return grad.contiguous(format);
  return grad.is_sole_owner() ? std::move(grad) : grad.clone();
}

}  // namespace

// Only to tell passes apart, wherever they run.
BackwardPass::BackwardPass(BackwardOptions options) : options_(options) {
  static std::atomic<std::uint64_t> passes{0};
  number_ = ++passes;
}

void BackwardPass::capture(std::span<const Tensor> tensors) {
  capturing_ = true;
  for (const Tensor& tensor : tensors) {
    const auto state = grad_state(tensor);
    if (state == nullptr || !state->requires_grad) {
      throw UsageError("gradients: input " + std::to_string(slot_of_input_.size()) + ", " +
                       tensor.describe() + ", does not require a gradient");
    }
    const auto [place, added] = capture_slot_.emplace(key_of(*state), slots_.size());
    if (added) slots_.emplace_back();
    slot_of_input_.push_back(place->second);
  }
}

void BackwardPass::capture(std::span<Captured> states, std::uint64_t floor) {
  capturing_ = true;
  floor_ = floor;
  for (Captured& captured : states) {
    const auto [place, added] = capture_slot_.emplace(key_of(*captured.state), slots_.size());
    if (added) slots_.push_back(std::move(captured.so_far));
    if (added && captured.in_place) reached_.emplace(place->second, false);
    slot_of_input_.push_back(place->second);
  }
}

namespace {

void refuse_moved(const Node& node) {
  throw UsageError("backward of " + std::string(node.name()) +
                   ": a tensor that it was computed from has moved to another device since; run backward "
                   "first, or compute it again");
}

}  // namespace

void BackwardPass::discover(std::span<const Root> roots) {
  std::vector<std::shared_ptr<Node>> unvisited;
  for (const Root& root : roots) {
    const auto state = grad_state(root.tensor);
    if (state->node == nullptr) {
      ++uses_left_[state.get()];
    } else if (position_.emplace(state->node.get(), 0).second) {
      unvisited.push_back(state->node);
    }
  }
  while (!unvisited.empty()) {
    const std::shared_ptr<Node> node = std::move(unvisited.back());
    unvisited.pop_back();
    if (node->sequence() <= floor_) {
      steps_.push_back({node, Tensor(), false});
      continue;
    }
    if (node->is_released()) {
      throw UsageError("backward: the graph through " + std::string(node->name()) +
                       " was already used by an earlier backward and freed; give that one retain_graph");
    }
    for (const Edge& edge : node->inputs()) {
      if (edge.state == nullptr) continue;
      if (edge.state->has_moved) refuse_moved(*node);
      if (edge.state->node == nullptr) {
        ++uses_left_[edge.state.get()];
      } else if (position_.emplace(edge.state->node.get(), 0).second) {
        unvisited.push_back(edge.state->node);
      }
    }
    steps_.push_back({node, Tensor(), true});
  }
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& a, const Step& b) { return a.node->sequence() > b.node->sequence(); });
  for (std::size_t i = 0; i < steps_.size(); ++i) position_[steps_[i].node.get()] = i;
  // What is collected of an operation's result is its whole gradient.
  for (const auto& [key, slot] : capture_slot_) {
    const auto step = position_.find(static_cast<const Node*>(key));
    if (step != position_.end()) steps_[step->second].grad = std::exchange(slots_[slot], Tensor());
  }
}

bool BackwardPass::is_needed(const Edge& edge) const {
  if (edge.state == nullptr) return false;
  if (!capturing_ || capture_slot_.contains(key_of(*edge.state))) return true;
  return edge.state->node != nullptr && steps_[position_.at(edge.state->node.get())].needed;
}

void BackwardPass::prune() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->node->sequence() <= floor_) continue;
    const auto& inputs = step->node->inputs();
    step->needed =
        std::any_of(inputs.begin(), inputs.end(), [this](const Edge& edge) { return is_needed(edge); });
  }
}

void BackwardPass::run(std::span<const Root> roots) {
  const GradMode mode(options_.create_graph);
  discover(roots);
  if (capturing_) prune();
  for (const Root& root : roots) {
    const auto state = grad_state(root.tensor);
    if (state->node != nullptr) {
      add_to_node(state->node.get(), root.seed);
    } else {
      add_to_leaf(*state, root.seed);
      leaf_used(*state);
    }
  }
  for (Step& step : steps_) run_step(step);
  for (const std::size_t slot : slot_of_input_) captured_.push_back(slots_[slot]);
}

void BackwardPass::run_step(Step& step) {
  if (const auto wanted = capture_slot_.find(step.node.get()); wanted != capture_slot_.end()) {
    slots_[wanted->second] = step.grad;
  }
  if (step.needed) {
    GradSink sink(*this, step.node, step.is_zero_mean);
    if (step.grad.defined()) step.node->run(std::move(step.grad), sink);
    for (std::size_t i = 0; i < step.node->inputs().size(); ++i) {
      if (sink.wants(static_cast<int>(i)) && !sink.delivered_[i]) sink.deliver(static_cast<int>(i), {});
    }
  }
  end_operation();
  step.grad = Tensor();
  if (step.node->sequence() <= floor_) return step.node.reset();
  if (!options_.retain_graph && !options_.create_graph) step.node->release();
  step.node.reset();
}

void BackwardPass::sum_into(Tensor& total, Tensor grad) const {
  if (!total.defined()) {
    total = std::move(grad);
  } else if (!options_.create_graph && total.is_sole_owner() && is_dense(total)) {
    total.device().kernels().accumulate(grad.view(), 1.0, total.view());
  } else {
    total = add(total, grad);
  }
}

void BackwardPass::add_to_node(const Node* node, Tensor grad) {
  Step& step = steps_[position_.at(node)];
  step.is_zero_mean = false;
  sum_into(step.grad, std::move(grad));
}

const Tensor& BackwardPass::total_of(const GradState& state) const {
  if (state.node != nullptr) return steps_[position_.at(state.node.get())].grad;
  return slots_[capture_slot_.at(&state)];
}

bool BackwardPass::writes_in_place(const GradState& leaf) const {
  return leaf.node == nullptr && (!capturing_ || is_in_place(leaf)) && !options_.create_graph;
}

bool BackwardPass::is_in_place(const GradState& leaf) const {
  const auto slot = capture_slot_.find(&leaf);
  return slot != capture_slot_.end() && reached_.contains(slot->second);
}

void BackwardPass::add_to_leaf(GradState& leaf, Tensor grad) {
  if (capturing_) {
    const auto slot = capture_slot_.find(&leaf);
    if (slot == capture_slot_.end()) return;
    const auto own = reached_.find(slot->second);
    if (own == reached_.end()) return sum_into(slots_[slot->second], std::move(grad));
    own->second = true;
  }
  if (leaf.grad_storage.defined()) {
    if (options_.create_graph) {
      throw UsageError(
          "backward with create_graph: a leaf's gradient lives in memory given by set_grad_storage and "
          "cannot keep its history; use gradients() instead");
    }
    if (leaf.grad.defined()) {
      leaf.grad.add_in_place(grad);
    } else {
      if (grad.view().data != leaf.grad_storage.view().data) leaf.grad_storage.copy_from(grad);
      leaf.grad = leaf.grad_storage;
    }
  } else if (!leaf.grad.defined()) {
    leaf.grad = own(std::move(grad), leaf.format);
  } else if (options_.create_graph) {
    leaf.grad = add(leaf.grad, grad);
  } else {
    leaf.grad.add_in_place(grad);
  }
}

void BackwardPass::leaf_used(GradState& leaf) {
  if (capturing_ || --uses_left_[&leaf] > 0 || !leaf.ready) return;
  const std::function<void()> ready = leaf.ready;  // it may replace itself
  ready();
}

GradSink::GradSink(BackwardPass& pass, const std::shared_ptr<Node>& node, bool is_zero_mean)
    : pass_(pass), node_(node), is_zero_mean_(is_zero_mean), delivered_(node->inputs().size()) {}

bool GradSink::wants(int input) const {
  return pass_.is_needed(node_->inputs()[static_cast<std::size_t>(input)]);
}

std::uint64_t GradSink::pass() const noexcept { return pass_.number_; }

const BackwardOptions& GradSink::options() const noexcept { return pass_.options_; }

const Dims& GradSink::shape(int input) const {
  return node_->inputs()[static_cast<std::size_t>(input)].shape;
}

DType GradSink::dtype(int input) const { return node_->inputs()[static_cast<std::size_t>(input)].dtype; }

void GradSink::deliver(int input, Tensor grad) {
  const Edge& edge = node_->inputs()[static_cast<std::size_t>(input)];
  if (edge.state == nullptr) return;
  if (grad.defined() && (grad.shape() != edge.shape || grad.dtype() != edge.dtype)) {
    throw Error("backward of " + std::string(node_->name()) + ": gradient of input " + std::to_string(input) +
                " is " + grad.describe() + ", expected " + std::string(name_of(edge.dtype)) + " " +
                edge.shape.to_string());
  }
  delivered_[static_cast<std::size_t>(input)] = true;
  if (edge.state->node != nullptr) {
    if (grad.defined()) pass_.add_to_node(edge.state->node.get(), std::move(grad));
    return;
  }
  if (grad.defined()) pass_.add_to_leaf(*edge.state, std::move(grad));
  pass_.leaf_used(*edge.state);
}

void GradSink::deliver_zero_mean(int input, Tensor grad) {
  const Edge& edge = node_->inputs()[static_cast<std::size_t>(input)];
  const Node* const node = edge.state == nullptr ? nullptr : edge.state->node.get();
  const bool is_first = node != nullptr && !pass_.steps_[pass_.position_.at(node)].grad.defined();
  deliver(input, std::move(grad));
  if (is_first) pass_.steps_[pass_.position_.at(node)].is_zero_mean = true;
}

Tensor GradSink::destination(int input, const std::shared_ptr<Device>& device) {
  const Edge& edge = node_->inputs()[static_cast<std::size_t>(input)];
  const GradState& state = *edge.state;
  if (pass_.writes_in_place(state) && !state.grad.defined() && state.grad_storage.defined()) {
    state.grad_storage.mark_modified();
    return state.grad_storage;
  }
  return Tensor::empty(edge.shape, device, edge.dtype);
}

std::optional<Tensor> GradSink::accumulator(int input) {
  const GradState& state = *node_->inputs()[static_cast<std::size_t>(input)].state;
  if (!pass_.writes_in_place(state) || !state.grad.defined()) return std::nullopt;
  return state.grad;
}

std::optional<Tensor> GradSink::any_accumulator(int input) {
  const GradState& state = *node_->inputs()[static_cast<std::size_t>(input)].state;
  if (pass_.options_.create_graph) return std::nullopt;
  if (pass_.writes_in_place(state)) return accumulator(input);
  const Tensor& total = pass_.total_of(state);
  if (!total.defined() || !total.is_sole_owner() || !is_dense(total)) return std::nullopt;
  return total;
}

void GradSink::delivered_in_place(int input) {
  const Edge& edge = node_->inputs()[static_cast<std::size_t>(input)];
  delivered_[static_cast<std::size_t>(input)] = true;
  if (edge.state->node != nullptr) {
    pass_.steps_[pass_.position_.at(edge.state->node.get())].is_zero_mean = false;
    return;
  }
  if (pass_.writes_in_place(*edge.state)) edge.state->grad.mark_modified();
  if (pass_.capturing_ && pass_.is_in_place(*edge.state))
    pass_.reached_[pass_.capture_slot_.at(edge.state.get())] = true;
  pass_.leaf_used(*edge.state);
}

bool GradSink::is_leaf_in_place(int input) const {
  return pass_.writes_in_place(*node_->inputs()[static_cast<std::size_t>(input)].state);
}

Tensor GradSink::take_total(int input) {
  const GradState& state = *node_->inputs()[static_cast<std::size_t>(input)].state;
  if (pass_.options_.create_graph) return {};
  if (state.node != nullptr)
    return std::exchange(pass_.steps_[pass_.position_.at(state.node.get())].grad, Tensor());
  const auto slot = pass_.capture_slot_.find(&state);
  return slot == pass_.capture_slot_.end() ? Tensor() : std::exchange(pass_.slots_[slot->second], Tensor());
}

}  // namespace dtrain
