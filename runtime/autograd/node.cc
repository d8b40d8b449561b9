// Recording of operations and what they keep for backward.
#include "runtime/autograd/node.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

/// Numbers operations of a thread in the order in which they ran; a graph built by several threads stays in
/// order because a node also outnumbers its inputs.
thread_local std::uint64_t latest = 0;

std::uint64_t next_sequence(const std::vector<Edge>& inputs) {
  for (const Edge& edge : inputs) {
    if (edge.state != nullptr && edge.state->node != nullptr) {
      latest = std::max(latest, edge.state->node->sequence());
    }
  }
  return ++latest;
}

Edge edge_to(const Tensor& input) {
  if (!input.defined()) return {};
  return {input.requires_grad() ? grad_state(input) : nullptr, input.shape(), input.dtype()};
}

void attach_node(Tensor& tensor, std::shared_ptr<Node> node) {
  auto state = std::make_shared<GradState>();
  state->requires_grad = true;
  state->node = std::move(node);
  tensor.attach(std::move(state));
}

}  // namespace

std::shared_ptr<GradState> grad_state(const Tensor& tensor) {
  return std::static_pointer_cast<GradState>(tensor.autograd_state());
}

std::uint64_t reserve_sequence() noexcept { return ++latest; }

void number_after(std::uint64_t sequence) noexcept { latest = std::max(latest, sequence); }

Node::Node(std::string_view name, std::vector<Edge> inputs, BackwardFunction backward, bool keeps_tensors,
           std::uint64_t sequence)
    : name_(name),
      sequence_(sequence != 0 ? sequence : next_sequence(inputs)),
      inputs_(std::move(inputs)),
      backward_(std::move(backward)),
      keeps_tensors_(keeps_tensors) {}

// A long chain would overflow the stack if each node destroyed its inputs recursively, so nodes that only
// this chain holds are taken apart in a loop.
Node::~Node() {
  backward_ = nullptr;
  std::vector<Edge> doomed = std::move(inputs_);
  while (!doomed.empty()) {
    const std::shared_ptr<GradState> state = std::move(doomed.back().state);
    doomed.pop_back();
    if (state == nullptr || state.use_count() > 1 || state->node == nullptr || state->node.use_count() > 1) {
      continue;
    }
    Node& node = *state->node;
    node.backward_ = nullptr;
    std::move(node.inputs_.begin(), node.inputs_.end(), std::back_inserter(doomed));
    node.inputs_.clear();
  }
}

void Node::release() {
  if (!keeps_tensors_) return;
  released_ = true;
  backward_ = nullptr;
  inputs_.clear();
}

Tensor Saved::get(const GradSink& sink) const {
  if (tensor_.version() != version_) {
    throw UsageError("backward of " + std::string(sink.node()->name()) + ": " +
                     (is_output_ ? "its result " : "its input ") + tensor_.describe() +
                     " was modified in place after it was used (version " +
                     std::to_string(tensor_.version()) + ", expected " + std::to_string(version_) +
                     "); run backward first, or modify a clone()");
  }
  if (!is_output_ || !grad_enabled()) return tensor_;
  Tensor result = tensor_.detach();
  attach_node(result, sink.node());
  return result;
}

bool recording(std::initializer_list<Tensor> inputs) {
  return recording(std::span<const Tensor>(inputs.begin(), inputs.size()));
}

bool recording(std::span<const Tensor> inputs) {
  return grad_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); });
}

Tensor record_node(std::string_view name, Tensor output, std::span<const Tensor> inputs,
                   BackwardFunction backward, bool keeps_tensors) {
  end_operation();
  if (!recording(inputs)) return output;
  std::vector<Edge> edges;
  edges.reserve(inputs.size());
  for (const Tensor& input : inputs) edges.push_back(edge_to(input));
  attach_node(output, std::make_shared<Node>(name, std::move(edges), std::move(backward), keeps_tensors));
  return output;
}

// The tape knows operations with one result. So there is a hub between the inputs and the results: a number
// that each result is recorded as a function of. On the way back the results leave their gradients here, and
// the hub, which runs after all of them, takes them on.
std::vector<Tensor> record_several(std::string_view name, std::vector<Tensor> outputs,
                                   std::span<const Tensor> inputs, SeveralBackwardFunction backward) {
  if (outputs.empty() || !recording(inputs)) return outputs;
  struct Arrivals {
    std::uint64_t pass = 0;
    std::vector<Tensor> grads;
  };
  const auto arrivals = std::make_shared<Arrivals>();
  const Tensor hub = record(name, Tensor::empty({}, outputs[0].shared_device()), inputs,
                            [arrivals, backward = std::move(backward)](const Tensor&, GradSink& sink) {
                              const std::vector<Tensor> grads = std::exchange(arrivals->grads, {});
                              backward(grads, sink);
                            });
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] =
        record(name, std::move(outputs[i]), {hub},
               [arrivals, i, count = outputs.size(), signal = hub.detach()](Tensor grad, GradSink& sink) {
                 if (!sink.wants(0)) return;
                 const bool first = std::exchange(arrivals->pass, sink.pass()) != sink.pass();
                 // A pass that failed half-way may have left something.
                 if (first) arrivals->grads.assign(count, Tensor());
                 arrivals->grads[i] = std::move(grad);
                 sink.deliver(0, first ? signal : Tensor());
               });
  }
  return outputs;
}

Tensor once_differentiable(const GradSink& sink, const Tensor& grad, Tensor value) {
  if (!grad_enabled()) return value;
  std::vector<Edge> edges = sink.node()->inputs();
  edges.push_back(edge_to(grad));
  const std::string_view name = sink.node()->name();
  auto refuse = [name](const Tensor&, GradSink&) {
    throw UsageError(std::string(name) +
                     ": gradients of its gradient are not available; leave create_graph out, or compute this "
                     "part with other operations");
  };
  attach_node(value, std::make_shared<Node>(name, std::move(edges), refuse, false));
  return value;
}

Tensor record_linear(std::string_view name, const Tensor& source, Tensor result, Adjoint adjoint,
                     bool keeps_tensors) {
  if (!recording(source)) return result;
  auto backward = [adjoint = std::move(adjoint)](Tensor grad, GradSink& sink) {
    Tensor mapped = adjoint(grad);
    grad = Tensor();  // a view of it may now be the only owner
    sink.deliver(0, std::move(mapped));
  };
  return record_node(name, std::move(result), std::span(&source, 1), std::move(backward), keeps_tensors);
}

}  // namespace dtrain
