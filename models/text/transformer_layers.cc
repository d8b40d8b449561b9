#include "models/text/transformer_layers.h"

#include <fmt/format.h>

#include "parallel/tensor/layers.h"
#include "parallel/tensor/split_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/norms.h"

namespace dtrain {
namespace {

/// Where a network's masks come from: another seed gives other masks, and weights are drawn as without.
std::shared_ptr<DropoutKey> mask_key(Generator generator, const std::shared_ptr<Device>& device) {
  return std::make_shared<DropoutKey>(generator.next64(), device);
}

std::uint64_t seed_beside(Generator generator) { return generator.next64(); }

std::optional<RotaryEmbedding> rotary_of(const TransformerShape& shape,
                                         const std::shared_ptr<Device>& device) {
  if (!shape.rotary) return std::nullopt;
  return RotaryEmbedding(shape.context, shape.head_shape().head_width, device, *shape.rotary);
}

}  // namespace

Tensor dropped(const std::shared_ptr<Module>& dropout, const Tensor& x) {
  return dropout ? (*dropout)(x) : x;
}

Tensor parameter_of(const Module& module, std::string_view name) {
  for (const auto& [own, tensor] : module.named_parameters()) {
    if (own == name) return tensor;
  }
  throw UsageError(fmt::format("transformer: expected a parameter {}, got none", name));
}

TransformerLayers::TransformerLayers(const TransformerShape& shape, Generator& generator,
                                     const std::shared_ptr<Device>& device,
                                     const TensorParallelGroup* tp_group)
    : shape_(shape),
      generator_(generator),
      device_(device),
      tp_group_(tp_group),
      key_(shape.dropout > 0 ? mask_key(generator, device) : nullptr),
      adapter_generator_(seed_beside(generator)),
      rotary_(rotary_of(shape, device)) {}

std::optional<int> TransformerLayers::sequence_dim() const {
  return tp_group_->sequence ? std::optional(1) : std::nullopt;
}

// A slice is that of the values which the unsplit layer would begin with.
std::shared_ptr<Module> TransformerLayers::drawn(std::shared_ptr<Module> layer, double deviation) const {
  if (shape_.initial_deviation <= 0) return layer;
  const NoGrad no_grad;
  std::map<std::string, TensorShard> slices;
  if (tp_group_ != nullptr) slices = slices_of(*layer, tp_group_->group);
  for (auto& [name, tensor] : layer->named_parameters()) {
    if (tensor.rank() < 2) {
      tensor.fill(0);
      continue;
    }
    const auto slice = slices.find(name);
    if (slice == slices.end()) {
      tensor.fill_normal(generator_, 0, deviation);
      continue;
    }
    Tensor unsplit = Tensor::empty(slice->second.shape, device_);
    unsplit.fill_normal(generator_, 0, deviation);
    const int dim = tensor.size(0) == unsplit.size(0) ? 1 : 0;
    const std::int64_t first = tensor.size(dim) * tp_group_->group.communicator.rank();
    tensor.copy_from(unsplit.slice(dim, first, first + tensor.size(dim)));
  }
  return layer;
}

std::shared_ptr<Module> TransformerLayers::columns(std::int64_t in, std::int64_t out,
                                                   const std::string& label, bool bias) const {
  std::shared_ptr<Module> layer;
  if (tp_group_ == nullptr) {
    layer = std::make_shared<Linear>(in, out, linear_generator(), device_, LinearOptions{.bias = bias});
  } else {
    layer =
        std::make_shared<ColumnParallelLinear>(in, out, linear_generator(), device_, tp_group_->group, label,
                                               ColumnOptions{.bias = bias, .sequence_dim = sequence_dim()});
  }
  return drawn(std::move(layer), shape_.initial_deviation);
}

std::shared_ptr<Module> TransformerLayers::rows(std::int64_t in, std::int64_t out, const std::string& label,
                                                bool bias, double deviation) const {
  std::shared_ptr<Module> layer;
  if (tp_group_ == nullptr) {
    layer = std::make_shared<Linear>(in, out, linear_generator(), device_, LinearOptions{.bias = bias});
  } else {
    layer = std::make_shared<RowParallelLinear>(in, out, linear_generator(), device_, tp_group_->group, label,
                                                RowOptions{.bias = bias, .sequence_dim = sequence_dim()});
  }
  return drawn(std::move(layer), deviation);
}

std::shared_ptr<Module> TransformerLayers::whole(std::int64_t in, std::int64_t out, bool bias) const {
  auto layer = std::make_shared<Linear>(in, out, linear_generator(), device_, LinearOptions{.bias = bias});
  if (shape_.initial_deviation <= 0) return layer;
  const NoGrad no_grad;
  for (auto& [name, tensor] : layer->named_parameters()) {
    if (tensor.rank() < 2) {
      tensor.fill(0);
    } else {
      tensor.fill_normal(generator_, 0, shape_.initial_deviation);
    }
  }
  return layer;
}

std::shared_ptr<Module> TransformerLayers::norm(const std::string& label) const {
  const Dims dims{shape_.width};
  const bool rms = shape_.norm == TransformerNorm::rms;
  if (!splits_sequence()) {
    if (rms) return std::make_shared<RMSNorm>(dims, device_, shape_.norm_eps);
    return std::make_shared<LayerNorm>(dims, device_, shape_.norm_eps);
  }
  if (rms)
    return std::make_shared<SequenceParallelRMSNorm>(dims, device_, tp_group_->group, label, shape_.norm_eps);
  return std::make_shared<SequenceParallelNorm>(dims, device_, tp_group_->group, label, shape_.norm_eps);
}

std::shared_ptr<Module> TransformerLayers::words() const {
  const EmbeddingOptions options{.padding_index = shape_.padding};
  std::shared_ptr<Module> table;
  if (tp_group_ == nullptr || !splits_words(shape_, *tp_group_)) {
    table = std::make_shared<Embedding>(shape_.vocabulary, shape_.width, generator_, device_, options);
  } else {
    table = std::make_shared<VocabParallelEmbedding>(shape_.vocabulary, shape_.width, generator_, device_,
                                                     tp_group_->group, "words", options);
  }
  const NoGrad no_grad;
  for (auto& [name, tensor] : table->named_parameters()) tensor.scale_in_place(shape_.table_deviation);
  return table;
}

std::shared_ptr<Module> TransformerLayers::table(std::int64_t count) const {
  auto table = std::make_shared<Embedding>(count, shape_.width, generator_, device_);
  const NoGrad no_grad;
  for (auto& [name, tensor] : table->named_parameters()) tensor.scale_in_place(shape_.table_deviation);
  return table;
}

std::shared_ptr<Module> TransformerLayers::adapter(std::string_view layer, std::int64_t in, std::int64_t out,
                                                   SplitFeatures split, const std::string& label) const {
  if (!shape_.lora || !shape_.lora->has(layer)) return nullptr;
  if (tp_group_ == nullptr)
    return std::make_shared<LoraAdapter>(in, out, *shape_.lora, adapter_generator_, device_);
  return std::make_shared<SplitLoraAdapter>(in, out, *shape_.lora, adapter_generator_, device_, *tp_group_,
                                            split, label);
}

std::shared_ptr<Module> TransformerLayers::dropout() const {
  if (key_ == nullptr) return nullptr;
  return std::make_shared<Dropout>(shape_.dropout, key_,
                                   splits_sequence() ? tp_group_->group.communicator.rank() : 0);
}

}  // namespace dtrain
