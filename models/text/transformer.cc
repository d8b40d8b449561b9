#include "models/text/transformer.h"

#include <fmt/format.h>

#include "parallel/tensor/layers.h"
#include "parallel/tensor/split_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/base/error.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/norms.h"

namespace dtrain {
namespace {

constexpr double kTableScale = 0.02;  // GPT-2's deviation of words and positions

TransformerShape checked(const TransformerShape& shape, const TensorParallelGroup* tp_group) {
  if (shape.heads < 1 || shape.layers < 1 || shape.width < 1 || shape.width % shape.heads != 0) {
    throw UsageError(
        fmt::format("transformer: expected at least one layer and a width that is a multiple of its heads, "
                    "got {} layers, a width of {} and {} heads",
                    shape.layers, shape.width, shape.heads));
  }
  if (!(shape.dropout >= 0 && shape.dropout < 1)) {
    throw UsageError(
        fmt::format("transformer: expected a dropout of at least 0 and below 1, got {}", shape.dropout));
  }
  if (tp_group == nullptr) return shape;
  const int ranks = tp_group->group.communicator.size();
  if (shape.heads % ranks != 0 || shape.vocabulary % ranks != 0) {
    throw UsageError(fmt::format(
        "transformer: expected numbers of heads and words that are multiples of the {} workers, got "
        "{} heads and a vocabulary of {}",
        ranks, shape.heads, shape.vocabulary));
  }
  if (tp_group->sequence && shape.context % ranks != 0) {
    throw UsageError(
        fmt::format("transformer: expected a context that is a multiple of the {} workers, got {}", ranks,
                    shape.context));
  }
  return shape;
}

/// x through `dropout`, where there is one.
Tensor dropped(const std::shared_ptr<Module>& dropout, const Tensor& x) {
  return dropout ? (*dropout)(x) : x;
}

/// Where a network's masks come from: another seed gives other masks, and weights are drawn as without.
std::shared_ptr<DropoutKey> mask_key(Generator generator, const std::shared_ptr<Device>& device) {
  return std::make_shared<DropoutKey>(generator.next64(), device);
}

/// Makes the layers of a network, whole or split.
class Layers {
 public:
  Layers(Generator& generator, const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group,
         double dropout)
      : generator_(generator),
        device_(device),
        tp_group_(tp_group),
        dropout_(dropout),
        key_(dropout > 0 ? mask_key(generator, device) : nullptr) {}

  std::shared_ptr<Module> columns(std::int64_t in, std::int64_t out, const std::string& label,
                                  Activation activation = Activation::none, bool bias = true) const {
    if (tp_group_ == nullptr) {
      return std::make_shared<Linear>(in, out, generator_, device_,
                                      LinearOptions{.bias = bias, .activation = activation});
    }
    return std::make_shared<ColumnParallelLinear>(
        in, out, generator_, device_, tp_group_->group, label,
        ColumnOptions{.bias = bias, .activation = activation, .sequence_dim = sequence_dim()});
  }
  std::shared_ptr<Module> rows(std::int64_t in, std::int64_t out, const std::string& label) const {
    if (tp_group_ == nullptr) return std::make_shared<Linear>(in, out, generator_, device_);
    return std::make_shared<RowParallelLinear>(in, out, generator_, device_, tp_group_->group, label,
                                               RowOptions{.sequence_dim = sequence_dim()});
  }
  std::shared_ptr<Module> norm(std::int64_t width, const std::string& label) const {
    if (tp_group_ == nullptr || !tp_group_->sequence)
      return std::make_shared<LayerNorm>(Dims{width}, device_);
    return std::make_shared<SequenceParallelNorm>(Dims{width}, device_, tp_group_->group, label);
  }
  std::shared_ptr<Module> table(std::int64_t words, std::int64_t width, const std::string& label) const {
    std::shared_ptr<Module> table;
    if (tp_group_ == nullptr) {
      table = std::make_shared<Embedding>(words, width, generator_, device_);
    } else {
      table = std::make_shared<VocabParallelEmbedding>(words, width, generator_, device_, tp_group_->group,
                                                       label);
    }
    const NoGrad no_grad;
    for (auto& [name, tensor] : table->named_parameters()) tensor.scale_in_place(kTableScale);
    return table;
  }
  /// On features of a token, whole or of this rank's part of a split sequence; null without.
  std::shared_ptr<Module> dropout() const {
    if (key_ == nullptr) return nullptr;
    const bool is_part = tp_group_ != nullptr && tp_group_->sequence;
    return std::make_shared<Dropout>(dropout_, key_, is_part ? tp_group_->group.communicator.rank() : 0);
  }
  int ranks() const { return tp_group_ == nullptr ? 1 : tp_group_->group.communicator.size(); }

 private:
  std::optional<int> sequence_dim() const { return tp_group_->sequence ? std::optional(1) : std::nullopt; }

  Generator& generator_;
  const std::shared_ptr<Device>& device_;
  const TensorParallelGroup* tp_group_;
  double dropout_;
  std::shared_ptr<DropoutKey> key_;  ///< null without dropout
};

/// x [B, L, width] (of a split sequence this rank's part) → the same.
class Block final : public Module {
 public:
  Block(const TransformerShape& shape, const Layers& layers, const std::string& label)
      : heads_(shape.heads / layers.ranks()),
        norm1_(add_module("norm1", layers.norm(shape.width, label + " norm1"))),
        qkv_(add_module("qkv", layers.columns(shape.width, 3 * shape.width, label + " qkv"))),
        proj_(add_module("proj", layers.rows(shape.width, shape.width, label + " proj"))),
        norm2_(add_module("norm2", layers.norm(shape.width, label + " norm2"))),
        up_(add_module("up", layers.columns(shape.width, 4 * shape.width, label + " up"))),
        down_(add_module("down", layers.rows(4 * shape.width, shape.width, label + " down"))),
        attention_dropout_(layers.dropout()),
        wide_dropout_(layers.dropout()) {
    if (attention_dropout_) add_module("attention_dropout", attention_dropout_);
    if (wide_dropout_) add_module("wide_dropout", wide_dropout_);
    mark_block();
  }

  Tensor forward(const Tensor& x) override {
    const Tensor h = add(x, dropped(attention_dropout_, (*proj_)(attend((*qkv_)((*norm1_)(x))))));
    return add(h, dropped(wide_dropout_, (*down_)(gelu((*up_)((*norm2_)(h))))));
  }

 private:
  /// qkv [B, L, heads · 3 · head_width] → [B, L, heads · head_width]
  Tensor attend(const Tensor& qkv) const {
    return packed_attention(qkv, {.heads = heads_, .by_group = true}, {.causal = true});
  }

  std::int64_t heads_;
  std::shared_ptr<Module> norm1_, qkv_, proj_, norm2_, up_, down_;
  std::shared_ptr<Module> attention_dropout_, wide_dropout_;  ///< null without
};

/// tokens, integers [B, L] → [B, L, width] (of a split sequence this rank's part): words and their places.
class Embed final : public Module {
 public:
  Embed(const TransformerShape& shape, const Layers& layers, Generator& generator,
        const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group)
      : context_(shape.context),
        words_(add_module("words", layers.table(shape.vocabulary, shape.width, "words"))),
        positions_(add_parameter(
            "positions", mul(Tensor::randn({shape.context, shape.width}, generator, device), kTableScale))),
        dropout_(layers.dropout()) {
    if (dropout_) add_module("dropout", dropout_);
    if (tp_group != nullptr && tp_group->sequence) tp_group_.emplace(*tp_group);
  }
  Tensor forward(const Tensor& tokens) override {
    if (tokens.rank() != 2 || tokens.size(1) > context_) {
      throw UsageError(fmt::format("transformer: expected tokens [B, L] with at most {} of them, got {}",
                                   context_, tokens.describe()));
    }
    const Tensor h = add((*words_)(tokens.to(DType::i64)), positions_.slice(0, 0, tokens.size(1)));
    return dropped(dropout_, tp_group_ ? own_part(h, 1, tp_group_->group, "sequence") : h);
  }

 private:
  std::int64_t context_;
  std::shared_ptr<Module> words_;
  Tensor positions_;
  std::shared_ptr<Module> dropout_;  ///< null without
  std::optional<TensorParallelGroup> tp_group_;
};

Tensor table_of(const Module& embed) {
  for (const auto& [name, tensor] : embed.named_parameters()) {
    if (name == "words.weight") return tensor;
  }
  throw UsageError("transformer: expected a table of words, got none");
}

/// x [..., width] → [..., words], by the table of the words of input.
class TiedHead final : public Module {
 public:
  explicit TiedHead(const Tensor& table) : weight_(add_parameter("weight", table)) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight_, {}); }

 private:
  Tensor weight_;
};

/// The same of split words: this rank's part of the words.
class TensorParallelTiedHead final : public SplitModule {
 public:
  TensorParallelTiedHead(const Tensor& table, const TensorParallelGroup& tp_group)
      : SplitModule(tp_group.group), tp_group_(tp_group), weight_(add_tied_slice("weight", table, 0)) {}
  Tensor forward(const Tensor& x) override {
    const Tensor whole = tp_group_.sequence ? all_gather(x, 1, tp_group_.group, "head")
                                            : copy_to_ranks(x, tp_group_.group, "head");
    return linear(whole, weight_, {});
  }

 private:
  TensorParallelGroup tp_group_;
  Tensor weight_;
};

std::shared_ptr<Module> tied_head(const Module& embed, const TensorParallelGroup* tp_group) {
  if (tp_group == nullptr) return std::make_shared<TiedHead>(table_of(embed));
  return std::make_shared<TensorParallelTiedHead>(table_of(embed), *tp_group);
}

}  // namespace

Transformer::Transformer(const TransformerShape& asked, Generator& generator,
                         const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group) {
  const TransformerShape shape = checked(asked, tp_group);
  if (tp_group != nullptr) tp_group_.emplace(*tp_group);
  const Layers layers(generator, device, tp_group, shape.dropout);
  embed_ = add_module("embed", std::make_shared<Embed>(shape, layers, generator, device, tp_group));
  blocks_ = add_module("blocks", std::make_shared<ModuleList>());
  for (std::int64_t i = 0; i < shape.layers; ++i)
    blocks_->append(std::make_shared<Block>(shape, layers, fmt::format("block {}", i)));
  norm_ = add_module("norm", layers.norm(shape.width, "norm"));
  head_ = add_module(
      "head", shape.tied ? tied_head(*embed_, tp_group)
                         : layers.columns(shape.width, shape.vocabulary, "head", Activation::none, false));
}

Tensor Transformer::forward(const Tensor& tokens) { return through(chain(), tokens); }

// In training a split head's logits stay split: the loss wants no more.
std::vector<LayerUnit> Transformer::chain() const {
  std::vector<LayerUnit> chain{layer_unit("embed", embed_)};
  for (const auto& [name, block] : blocks_->children()) chain.push_back(layer_unit("blocks." + name, block));
  chain.push_back({{{"norm", norm_}, {"head", head_}},
                   [norm = norm_, head = head_, tp_group = tp_group_](const Tensor& x) {
                     const Tensor logits = (*head)((*norm)(x));
                     if (!tp_group || head->is_training()) return logits;
                     return gather_alike(logits, -1, tp_group->group, "logits");
                   }});
  return chain;
}

}  // namespace dtrain
