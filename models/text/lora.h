// Low-rank adapters (Hu et al., "LoRA", 2021): a network's matrices stay as they are, and small ones beside
// them learn.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/tensor/split_module.h"
#include "parallel/tensor/tensor_parallel_group.h"
#include "runtime/base/random.h"
#include "runtime/nn/attention.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 8;             ///< what adapters add counts alpha / rank
  std::vector<std::string> on;  ///< layers of a block: q, k, v, qkv, o, gate, up, down

  bool has(std::string_view layer) const;

  double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const LoraOptions&) const = default;
};

/// "rank=8,alpha=16,on=q+v"; alpha is the rank unless it is given. Throws UsageError for anything else.
LoraOptions parse_lora(std::string_view text);

/// y = alpha / rank · B A x, to be added to what a layer of `in` → `out` features gives. Parameters, named as
/// in the paper: a [rank, in], drawn as PEFT draws it (uniform within ±1/√in), and b [out, rank], zero, so
/// that nothing is added at first.
class LoraAdapter final : public Module {
 public:
  LoraAdapter(std::int64_t in, std::int64_t out, const LoraOptions& options, Generator& generator,
              const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  double scale_;
  Tensor a_, b_;
};

/// Which features of the layer that an adapter stands beside are split among the ranks.
enum class SplitFeatures { inputs, outputs };

/// This rank's part of a LoraAdapter, beside a layer whose features are split: of the one matrix on their
/// side it has a slice, b's rows or a's columns; the other one, which the rank alone makes large, is whole.
class SplitLoraAdapter final : public SplitModule {
 public:
  /// `label` names its collectives, the same on all ranks. Throws UsageError where the split features are not
  /// a multiple of the ranks.
  SplitLoraAdapter(std::int64_t in, std::int64_t out, const LoraOptions& options, Generator& generator,
                   const std::shared_ptr<Device>& device, const TensorParallelGroup& tp_group,
                   SplitFeatures split, std::string label);
  Tensor forward(const Tensor& x) override;

 private:
  Tensor whole(const Tensor& matrix) const;

  double scale_;
  SplitFeatures split_features_;
  bool sequence_;
  std::string label_;
  Tensor a_, b_;
};

/// What adapters of queries, keys and values give, each [B, L, its heads · head_width] or undefined, as one
/// tensor in the order of HeadShape, [B, L, fused_width()]; zero where there is none.
Tensor fuse_heads(const Tensor& query, const Tensor& key, const Tensor& value, const HeadShape& shape);

/// Whether the parameter `name` of a network is an adapter's.
bool is_adapter(std::string_view name);

/// `state` of a network of such shapes with its adapters' products added to the matrices they stand beside,
/// and without the adapters: what computes the same without them. `heads`: of its attention. Sums are taken
/// in float32.
NamedTensors merge_adapters(const NamedTensors& state, const LoraOptions& options, const HeadShape& heads);

}  // namespace dtrain
