// The tape: one Node for each recorded operation, linked to the tensors it was computed from. Operations use
// record(), Saved and GradSink; only the backward pass looks inside.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/autograd/grad_mode.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

class Node;
class BackwardPass;

/// What a tensor that takes part in autograd carries.
struct GradState final : AutogradState {
  bool requires_grad = false;
  std::shared_ptr<Node> node;  ///< the operation that computed the tensor; null for a leaf

  // Leaves only.
  MemoryFormat format = MemoryFormat::contiguous;  ///< the leaf's and its gradient's
  Tensor grad;                                     ///< undefined until the first accumulation
  Tensor grad_storage;                             ///< where grad has to live, if defined
  std::function<void()> ready;                     ///< called when grad is final for a pass
  bool has_moved = false;  ///< its tensor has another state now, on another device: no gradient gets there
};

/// Where a running backward function puts its results. Each wanted input gets exactly one deliver() (or
/// delivered_in_place()); the earlier, the sooner a gradient can be sent to other ranks.
class GradSink {
 public:
  GradSink(BackwardPass& pass, const std::shared_ptr<Node>& node, bool is_zero_mean = false);

  /// False for inputs that need no gradient: skip the work.
  bool wants(int input) const;
  /// Hands over the gradient of `input`, of its shape and dtype. Undefined means none.
  void deliver(int input, Tensor grad);
  /// The same for a gradient [N, C, …] whose sum over each channel is 0 but for rounding, as behind batch
  /// norm, which takes its channels' means away.
  void deliver_zero_mean(int input, Tensor grad);
  /// True where the whole gradient that this operation was given was delivered so.
  bool is_zero_mean() const noexcept { return is_zero_mean_; }

  /// Uninitialised row-major memory for the gradient of `input`, to be overwritten and delivered: the final
  /// place itself where that is possible, so that nothing is copied. `device` is where it is made otherwise.
  Tensor destination(int input, const std::shared_ptr<Device>& device);
  /// The gradient that the result may be added to directly, followed by delivered_in_place(); nothing when
  /// there is none yet or it must not be changed.
  std::optional<Tensor> accumulator(int input);
  /// The same for an input of any kind, an operation's result too: its gradient so far, where nobody else
  /// has it.
  std::optional<Tensor> any_accumulator(int input);
  void delivered_in_place(int input);

  /// For an operation that runs a pass of its own: whether that may add to the leaf `input` itself, followed
  /// by delivered_in_place(), and else the gradient of `input` so far, to be added to and delivered in its
  /// place; undefined where there is none.
  bool is_leaf_in_place(int input) const;
  Tensor take_total(int input);

  const Dims& shape(int input) const;
  DType dtype(int input) const;
  const std::shared_ptr<Node>& node() const noexcept { return node_; }
  /// Which pass this is: another number for each.
  std::uint64_t pass() const noexcept;
  const BackwardOptions& options() const noexcept;

 private:
  friend class BackwardPass;
  BackwardPass& pass_;
  const std::shared_ptr<Node>& node_;
  bool is_zero_mean_;
  std::vector<bool> delivered_;
};

/// Computes the gradients of an operation's inputs from that of its output, with differentiable operations:
/// they are recorded when the pass creates a graph. `grad` may be reused when it is_sole_owner().
using BackwardFunction = std::function<void(Tensor grad, GradSink& sink)>;

/// The same for an operation with several results: a gradient each, undefined where the pass did not reach
/// the result; at least one is defined.
using SeveralBackwardFunction = std::function<void(const std::vector<Tensor>& grads, GradSink& sink)>;

/// An input of a recorded operation; `state` is null where no gradient is needed.
struct Edge {
  std::shared_ptr<GradState> state;
  Dims shape;
  DType dtype = DType::f32;
};

/// One recorded operation.
class Node {
 public:
  /// `keeps_tensors`: `backward` holds some, which the first pass through it frees.
  /// `sequence` is from reserve_sequence(), after which every input was there; 0: the next one.
  Node(std::string_view name, std::vector<Edge> inputs, BackwardFunction backward, bool keeps_tensors,
       std::uint64_t sequence = 0);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::string_view name() const noexcept { return name_; }
  /// Larger than that of every operation it depends on.
  std::uint64_t sequence() const noexcept { return sequence_; }
  const std::vector<Edge>& inputs() const noexcept { return inputs_; }
  void run(Tensor grad, GradSink& sink) { backward_(std::move(grad), sink); }
  /// Frees what was saved and lets go of the inputs; the operation cannot run backward again. One that saved
  /// nothing can, so that results which share it, as views of one tensor do, may go backward one by one.
  void release();
  bool is_released() const noexcept { return released_; }

 private:
  std::string_view name_;
  std::uint64_t sequence_;
  std::vector<Edge> inputs_;
  BackwardFunction backward_;
  bool keeps_tensors_;
  bool released_ = false;
};

/// A number between those of the operations this thread has recorded and those it is going to.
std::uint64_t reserve_sequence() noexcept;
/// From now on this thread's operations have larger numbers than `sequence`.
void number_after(std::uint64_t sequence) noexcept;

/// A tensor kept for backward, which notices when it has been modified in place since.
class Saved {
 public:
  Saved() = default;
  /// Keeps an input of the operation.
  static Saved input(const Tensor& tensor) { return Saved(tensor, false); }
  static Saved input_if(bool needed, const Tensor& tensor) { return needed ? input(tensor) : Saved(); }
  /// Keeps the operation's own result (without a reference cycle).
  static Saved output(const Tensor& tensor) { return Saved(tensor.detach(), true); }

  /// The value, with its history. Throws UsageError naming the operation when it was modified.
  Tensor get(const GradSink& sink) const;
  /// The same where its value is `needed`; else the tensor as it is now, for its shape.
  Tensor get_if(bool needed, const GradSink& sink) const { return needed ? get(sink) : tensor_; }

 private:
  Saved(const Tensor& tensor, bool is_output)
      : tensor_(tensor), version_(tensor.version()), is_output_(is_output) {}

  Tensor tensor_;
  std::uint64_t version_ = 0;
  bool is_output_ = false;
};

/// True when an operation on `inputs` is to be recorded.
bool recording(std::initializer_list<Tensor> inputs);
bool recording(std::span<const Tensor> inputs);
inline bool recording(const Tensor& input) { return grad_enabled() && input.requires_grad(); }

/// What record() is made of.
Tensor record_node(std::string_view name, Tensor output, std::span<const Tensor> inputs,
                   BackwardFunction backward, bool keeps_tensors);

/// Makes `output` the recorded result of an operation on `inputs` (undefined ones allowed); returns it as it
/// is when nothing is to be recorded. `name` must be a literal.
/// A closure that needs no destructor keeps nothing but numbers: backward can run through it again.
template <class F>
Tensor record(std::string_view name, Tensor output, std::span<const Tensor> inputs, F backward) {
  return record_node(name, std::move(output), inputs, BackwardFunction(std::move(backward)),
                     !std::is_trivially_destructible_v<F>);
}
template <class F>
Tensor record(std::string_view name, Tensor output, std::initializer_list<Tensor> inputs, F backward) {
  return record(name, std::move(output), std::span<const Tensor>(inputs.begin(), inputs.size()),
                std::move(backward));
}

/// The same for several results, whose backward function is called once a pass, when the gradients of all of
/// them are final. The results must not be kept by it with Saved::output().
std::vector<Tensor> record_several(std::string_view name, std::vector<Tensor> outputs,
                                   std::span<const Tensor> inputs, SeveralBackwardFunction backward);

/// Marks `value`, a gradient that a backward function computed from `grad` and its operation's inputs by a
/// kernel, as depending on them in a way that cannot be differentiated: backward through it throws a
/// UsageError that names the operation. Returns `value` as it is when nothing is to be recorded.
Tensor once_differentiable(const GradSink& sink, const Tensor& grad, Tensor value);

/// The state of `tensor`, null when it has none.
std::shared_ptr<GradState> grad_state(const Tensor& tensor);

}  // namespace dtrain
