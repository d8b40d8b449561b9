#include "models/text/transformer.h"

#include <fmt/format.h>

#include "models/text/token_embedding.h"
#include "models/text/transformer_block.h"
#include "models/text/word_head.h"
#include "parallel/functional.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// A part whose module takes documents as its third input.
LayerUnit part_with_documents(std::string name, const std::shared_ptr<Module>& module) {
  return {{{std::move(name), module}}, [module](const Tensor& x, const Tensors& beside) {
            return beside.empty() ? (*module)(x) : (*module)(Tensors{x, {}, beside.front()}).front();
          }};
}

}  // namespace

Transformer::Transformer(const TransformerShape& asked, Generator& generator,
                         const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group)
    : shape_(checked(asked, tp_group)) {
  if (shape_.family == TransformerFamily::bert)
    throw UsageError("transformer: expected the shape of a network that predicts the next token, got BERT's");
  if (tp_group != nullptr) tp_group_.emplace(*tp_group);
  const TransformerLayers layers(shape_, generator, device, tp_group);
  embed_ = add_module("embed", std::make_shared<TokenEmbedding>(layers));
  blocks_ = add_module("blocks", std::make_shared<ModuleList>());
  for (std::int64_t i = 0; i < shape_.layers; ++i)
    blocks_->append(std::make_shared<TransformerBlock>(layers, fmt::format("block {}", i)));
  norm_ = add_module("norm", layers.norm("norm"));
  head_ = add_module("head", make_word_head(layers, *embed_));
  if (!shape_.lora) return;
  for (auto& [name, tensor] : named_parameters()) {
    if (!is_adapter(name)) tensor.set_requires_grad(false);
  }
}

Tensor Transformer::forward(const Tensor& tokens) { return through(chain(), tokens); }

void Transformer::leave_head_to_loss() {
  if (tp_group_) throw UsageError("transformer: expected a whole network, to leave its head to the loss");
  leaves_head_ = true;
}

Tensors Transformer::forward_all(const Tensors& inputs) {
  if (inputs.empty() || inputs.size() > 2) return Module::forward_all(inputs);  // which says so
  std::vector<LayerUnit> parts = chain();
  if (!leaves_head_ || !is_training()) return {through(parts, inputs.front(), beside_first(inputs))};
  parts.pop_back();
  return {(*norm_)(through(parts, inputs.front(), beside_first(inputs))), parameter_of(*head_, "weight")};
}

// In training a split head's logits stay split: the loss wants no more.
std::vector<LayerUnit> Transformer::chain() const {
  std::vector<LayerUnit> chain{part_with_documents("embed", embed_)};
  for (const auto& [name, block] : blocks_->children())
    chain.push_back(part_with_documents("blocks." + name, block));
  const bool splits = tp_group_ && splits_words(shape_, *tp_group_);
  chain.push_back({{{"norm", norm_}, {"head", head_}},
                   [norm = norm_, head = head_, tp_group = tp_group_, splits](const Tensor& x) {
                     const Tensor logits = (*head)((*norm)(x));
                     if (!splits || head->is_training()) return logits;
                     return gather_alike(logits, -1, tp_group->group, "logits");
                   }});
  return chain;
}

std::vector<KeyValueCache> Transformer::make_caches(std::int64_t batch, std::int64_t capacity) const {
  std::vector<KeyValueCache> caches;
  const auto device = parameter_of(*embed_, "words.weight").shared_device();
  for (std::int64_t i = 0; i < shape_.layers; ++i)
    caches.emplace_back(batch, capacity, shape_.head_shape(), device);
  return caches;
}

Tensor Transformer::forward_cached(const Tensor& tokens, std::vector<KeyValueCache>& caches,
                                   const Tensor& positions) {
  const NoGrad no_grad;
  Tensor h = positions.defined() ? dynamic_cast<TokenEmbedding&>(*embed_).forward_at(tokens, positions)
                                 : (*embed_)(tokens);
  std::size_t layer = 0;
  for (const auto& [name, block] : blocks_->children())
    h = dynamic_cast<TransformerBlock&>(*block).forward_cached(h, caches[layer++], positions);
  return (*head_)((*norm_)(h));
}

}  // namespace dtrain
