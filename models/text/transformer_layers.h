// The layers that transformers are made of, whole or this rank's slices, with their initial values: the one
// place that knows which. Not for users of a network.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/text/transformer_shape.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/dropout.h"

namespace dtrain {

/// Makes layers in the order in which their values are drawn. Borrows what it is given, for the time of
/// building.
class TransformerLayers {
 public:
  TransformerLayers(const TransformerShape& shape, Generator& generator,
                    const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group);

  /// x [..., in] → this rank's part of [..., out].
  std::shared_ptr<Module> columns(std::int64_t in, std::int64_t out, const std::string& label,
                                  bool bias) const;
  /// This rank's part of x [..., in] → [..., out]; `deviation` of its initial weights, where the shape has
  /// one.
  std::shared_ptr<Module> rows(std::int64_t in, std::int64_t out, const std::string& label, bool bias,
                               double deviation) const;
  /// x [..., in] → [..., out], whole on all ranks.
  std::shared_ptr<Module> whole(std::int64_t in, std::int64_t out, bool bias = true) const;
  std::shared_ptr<Module> norm(const std::string& label) const;
  /// The table of words, split among the ranks where they divide it.
  std::shared_ptr<Module> words() const;
  /// A table of BERT's segments, whole on all ranks.
  std::shared_ptr<Module> table(std::int64_t count) const;
  /// On features of a token, whole or of this rank's part of a split sequence; null without.
  std::shared_ptr<Module> dropout() const;
  /// Beside a layer of `in` → `out` features, split as columns() or rows(), that adapters call `layer`; null
  /// without.
  std::shared_ptr<Module> adapter(std::string_view layer, std::int64_t in, std::int64_t out,
                                  SplitFeatures split, const std::string& label) const;

  const TransformerShape& shape() const noexcept { return shape_; }
  const TensorParallelGroup* tp_group() const noexcept { return tp_group_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  Generator& generator() const noexcept { return generator_; }
  /// Angles of the positions, shared by all layers; null where places have a table.
  const RotaryEmbedding* rotary() const noexcept { return rotary_ ? &*rotary_ : nullptr; }
  int ranks() const { return tp_group_ == nullptr ? 1 : tp_group_->group.communicator.size(); }
  bool splits_sequence() const { return tp_group_ != nullptr && tp_group_->sequence; }

 private:
  std::optional<int> sequence_dim() const;
  /// Where a Linear's own values come from: what the shape replaces is not drawn from the network's
  /// generator.
  Generator& linear_generator() const { return shape_.initial_deviation > 0 ? unused_ : generator_; }
  std::shared_ptr<Module> drawn(std::shared_ptr<Module> layer, double deviation) const;

  TransformerShape shape_;
  Generator& generator_;
  mutable Generator unused_{0};
  const std::shared_ptr<Device>& device_;
  const TensorParallelGroup* tp_group_;
  std::shared_ptr<DropoutKey> key_;      ///< null without dropout
  mutable Generator adapter_generator_;  ///< a network's other values are drawn as without adapters
  std::optional<RotaryEmbedding> rotary_;
};

/// x through `dropout`, where there is one.
Tensor dropped(const std::shared_ptr<Module>& dropout, const Tensor& x);

/// The parameter `name` of `module`. Throws UsageError where there is none.
Tensor parameter_of(const Module& module, std::string_view name);

}  // namespace dtrain
