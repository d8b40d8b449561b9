// Some parts of a network as a network of their own, with the names that they have in the whole.
#pragma once

#include "runtime/nn/chain.h"

namespace dtrain {

/// Consecutive parts of a network.
using Chunk = std::vector<LayerUnit>;

/// What a stage of a pipeline holds: one chunk, or several that are not neighbours.
class StageModule final : public Module {
 public:
  explicit StageModule(std::vector<Chunk> chunks);
  /// Through one chunk.
  Tensor run(std::size_t chunk, const Tensor& x, const Tensors& beside = {}) const;
  /// Through all of them, one after the other.
  Tensor forward(const Tensor& x) override { return forward_all({x}).front(); }
  Tensors forward_all(const Tensors& inputs) override;
  /// The first chunk that has `parameter`, by its name here. Throws UsageError for another name.
  std::size_t chunk_of(const std::string& parameter) const;

 private:
  std::vector<Chunk> chunks_;
};

/// Elements of the parameters of `part`.
std::int64_t parameter_count(const LayerUnit& part);
/// A network's parts, weighed by their parameters and, as much together, each alike: convolutions take time
/// that their parameters do not show.
std::vector<double> costs_of(const std::vector<LayerUnit>& chain);

}  // namespace dtrain
