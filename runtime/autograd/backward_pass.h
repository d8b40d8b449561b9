// One run of backward: which operations take part, in which order, and where gradients end up.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/autograd/node.h"

namespace dtrain {

/// Runs the operations that a tensor was computed by from the newest to the oldest, so that each has its
/// whole gradient when its turn comes, the order never depends on chance, and memory is freed as early as
/// possible.
class BackwardPass {
 public:
  explicit BackwardPass(BackwardOptions options);

  /// Collects instead of accumulating: gradients of `tensors` only, see captured(). Call before run().
  void capture(std::span<const Tensor> tensors);
  /// What is collected of a state begins with a gradient that it has already, or is added to that of a leaf.
  struct Captured {
    std::shared_ptr<GradState> state;
    Tensor so_far = {};     ///< may be undefined
    bool in_place = false;  ///< a leaf's own gradient, as if nothing were captured
  };
  /// The same by states; operations numbered up to `floor` are not run: what reaches them ends there.
  void capture(std::span<Captured> states, std::uint64_t floor);
  /// Where a pass starts, with the gradient there.
  struct Root {
    Tensor tensor, seed;
  };
  /// Propagates the seeds. Called once.
  void run(std::span<const Root> roots);
  /// The collected gradient of the i-th tensor given to capture(); undefined when there is none.
  const Tensor& captured(std::size_t i) const { return captured_[i]; }
  /// Whether the i-th, collected in place, got anything.
  bool reached(std::size_t i) const { return reached_.at(slot_of_input_[i]); }

 private:
  friend class GradSink;

  struct Step {
    std::shared_ptr<Node> node;
    Tensor grad;
    bool needed = true;
    bool is_zero_mean = false;  ///< grad: see GradSink::deliver_zero_mean
  };

  void discover(std::span<const Root> roots);
  void prune();
  bool is_needed(const Edge& edge) const;
  void run_step(Step& step);
  void add_to_node(const Node* node, Tensor grad);
  void add_to_leaf(GradState& leaf, Tensor grad);
  void leaf_used(GradState& leaf);
  void sum_into(Tensor& total, Tensor grad) const;
  bool writes_in_place(const GradState& leaf) const;
  /// Whether the gradient of a captured leaf is its own.
  bool is_in_place(const GradState& leaf) const;
  /// The gradient so far of an operation's result, or of a leaf that is captured.
  const Tensor& total_of(const GradState& state) const;

  BackwardOptions options_;
  std::uint64_t number_;
  std::vector<Step> steps_;                                ///< newest first
  std::unordered_map<const Node*, std::size_t> position_;  ///< in steps_
  std::unordered_map<const GradState*, int> uses_left_;    ///< of each leaf in this pass
  bool capturing_ = false;
  std::uint64_t floor_ = 0;
  std::unordered_map<const void*, std::size_t> capture_slot_;  ///< by Node or, for leaves, GradState
  std::vector<std::size_t> slot_of_input_;
  std::vector<Tensor> slots_;
  std::unordered_map<std::size_t, bool> reached_;  ///< of the slots that are collected in place
  std::vector<Tensor> captured_;
};

}  // namespace dtrain
