// What published files call the tensors of language models, and how they lie there: one table a family.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/text/text_model.h"

namespace dtrain {
namespace {

/// Builds a table.
class Table {
 public:
  explicit Table(const TransformerShape& shape) : shape_(shape) {}

  void same(std::string ours, std::string theirs, std::int64_t rows) {
    table_.push_back({std::move(ours), {{std::move(theirs), rows}}});
  }
  /// weight [rows, …] and bias of one layer; theirs may have inputs first.
  void layer(const std::string& ours, const std::string& theirs, std::int64_t rows, bool bias,
             bool transposed) {
    table_.push_back({ours + ".weight", {{theirs + ".weight", rows}}, transposed});
    if (bias) table_.push_back({ours + ".bias", {{theirs + ".bias", rows}}});
  }
  /// A norm of layer or root mean square.
  void norm(const std::string& ours, const std::string& theirs) {
    layer(ours, theirs, shape_.width, shape_.norm == TransformerNorm::layer, false);
  }
  /// Queries, keys and values: here group by group, there each on its own, in one tensor or in three.
  void heads(const std::string& ours, const std::vector<std::string>& theirs, bool bias, bool transposed) {
    const HeadShape heads = shape_.head_shape();
    const std::int64_t queries = heads.heads * heads.head_width, keys = heads.kv_heads * heads.head_width;
    const auto parts = [&](const char* kind) {
      if (theirs.size() == 1)
        return std::vector<PublishedTensor::Part>{{theirs[0] + kind, heads.fused_width()}};
      return std::vector<PublishedTensor::Part>{
          {theirs[0] + kind, queries}, {theirs[1] + kind, keys}, {theirs[2] + kind, keys}};
    };
    table_.push_back({ours + ".weight", parts(".weight"), transposed, rows_by_group(heads)});
    if (bias) table_.push_back({ours + ".bias", parts(".bias"), false, rows_by_group(heads)});
  }
  /// The adapter called `layer` of the block `ours`, beside the layer `theirs`; of `rows` features.
  void adapter(const std::string& ours, std::string_view layer, const std::string& theirs,
               std::int64_t rows) {
    const std::string own = fmt::format("{}lora_{}.", ours, layer), base = "base_model.model." + theirs;
    table_.push_back({own + "a", {{base + ".lora_A.weight", shape_.lora->rank}}});
    table_.push_back({own + "b", {{base + ".lora_B.weight", rows}}});
    if (layer == "qkv") table_.back().rows = rows_by_group(shape_.head_shape());
  }
  std::vector<PublishedTensor> take() { return std::move(table_); }

 private:
  /// Which row of [all queries; all keys; all values] our row is: see HeadShape.
  static std::vector<std::int64_t> rows_by_group(const HeadShape& heads) {
    const std::int64_t group = heads.heads / heads.kv_heads;
    std::vector<std::int64_t> rows;
    const auto add = [&](std::int64_t head) {
      for (std::int64_t i = 0; i < heads.head_width; ++i) rows.push_back(head * heads.head_width + i);
    };
    for (std::int64_t key = 0; key < heads.kv_heads; ++key) {
      for (std::int64_t query = 0; query < group; ++query) add(key * group + query);
      add(heads.heads + key);
      add(heads.heads + heads.kv_heads + key);
    }
    return rows;
  }

  const TransformerShape& shape_;
  std::vector<PublishedTensor> table_;
};

std::vector<PublishedTensor> gpt2_names(const TransformerShape& shape) {
  Table table(shape);
  table.same("embed.words.weight", "transformer.wte.weight", shape.vocabulary);
  table.same("embed.positions", "transformer.wpe.weight", shape.context);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("transformer.h.{}.", i);
    table.norm(ours + "norm1", theirs + "ln_1");
    table.heads(ours + "qkv", {theirs + "attn.c_attn"}, true, true);
    table.layer(ours + "proj", theirs + "attn.c_proj", shape.width, true, true);
    table.norm(ours + "norm2", theirs + "ln_2");
    table.layer(ours + "up", theirs + "mlp.c_fc", shape.inner_width(), true, true);
    table.layer(ours + "down", theirs + "mlp.c_proj", shape.width, true, true);
  }
  table.norm("norm", "transformer.ln_f");
  if (!shape.tied) table.same("head.weight", "lm_head.weight", shape.vocabulary);
  return table.take();
}

std::vector<PublishedTensor> llama_names(const TransformerShape& shape) {
  Table table(shape);
  table.same("embed.words.weight", "model.embed_tokens.weight", shape.vocabulary);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    const std::string attention = theirs + "self_attn.", mlp = theirs + "mlp.";
    table.norm(ours + "norm1", theirs + "input_layernorm");
    table.heads(ours + "qkv", {attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                shape.qkv_bias, false);
    table.layer(ours + "proj", attention + "o_proj", shape.width, shape.proj_bias, false);
    table.norm(ours + "norm2", theirs + "post_attention_layernorm");
    table.layer(ours + "gate", mlp + "gate_proj", shape.inner_width(), shape.inner_bias, false);
    table.layer(ours + "up", mlp + "up_proj", shape.inner_width(), shape.inner_bias, false);
    table.layer(ours + "down", mlp + "down_proj", shape.width, shape.inner_bias, false);
  }
  table.norm("norm", "model.norm");
  if (!shape.tied) table.same("head.weight", "lm_head.weight", shape.vocabulary);
  return table.take();
}

std::vector<PublishedTensor> bert_names(const TransformerShape& shape, const BertHeads& heads) {
  Table table(shape);
  const std::string embeddings = "bert.embeddings.";
  table.same("embed.words.weight", embeddings + "word_embeddings.weight", shape.vocabulary);
  table.same("embed.positions", embeddings + "position_embeddings.weight", shape.context);
  table.same("embed.segments.weight", embeddings + "token_type_embeddings.weight", shape.segments);
  table.norm("embed.norm", embeddings + "LayerNorm");
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("bert.encoder.layer.{}.", i);
    const std::string attention = theirs + "attention.self.";
    table.heads(ours + "qkv", {attention + "query", attention + "key", attention + "value"}, true, false);
    table.layer(ours + "proj", theirs + "attention.output.dense", shape.width, true, false);
    table.norm(ours + "norm1", theirs + "attention.output.LayerNorm");
    table.layer(ours + "up", theirs + "intermediate.dense", shape.inner_width(), true, false);
    table.layer(ours + "down", theirs + "output.dense", shape.width, true, false);
    table.norm(ours + "norm2", theirs + "output.LayerNorm");
  }
  if (heads.next_sentence || heads.classes > 0)
    table.layer("pooler", "bert.pooler.dense", shape.width, true, false);
  if (heads.words) {
    table.layer("dense", "cls.predictions.transform.dense", shape.width, true, false);
    table.norm("norm", "cls.predictions.transform.LayerNorm");
    table.same("words.bias", "cls.predictions.bias", shape.vocabulary);
    if (!shape.tied) table.same("words.weight", "cls.predictions.decoder.weight", shape.vocabulary);
  }
  if (heads.next_sentence) table.layer("next", "cls.seq_relationship", 2, true, false);
  if (heads.classes > 0) table.layer("classes", "classifier", heads.classes, true, false);
  return table.take();
}

/// What PEFT calls a layer of a block, and how many features it gives.
struct AdaptedLayer {
  std::string_view layer, theirs;
  std::int64_t rows;
};

std::vector<AdaptedLayer> adapted_layers(const TransformerShape& shape) {
  const HeadShape heads = shape.head_shape();
  const std::int64_t inner = shape.inner_width(), keys = heads.kv_heads * heads.head_width;
  if (shape.family == TransformerFamily::gpt2) {
    return {{"qkv", "attn.c_attn", heads.fused_width()},
            {"o", "attn.c_proj", shape.width},
            {"up", "mlp.c_fc", inner},
            {"down", "mlp.c_proj", shape.width}};
  }
  return {{"q", "self_attn.q_proj", heads.heads * heads.head_width},
          {"k", "self_attn.k_proj", keys},
          {"v", "self_attn.v_proj", keys},
          {"o", "self_attn.o_proj", shape.width},
          {"gate", "mlp.gate_proj", inner},
          {"up", "mlp.up_proj", inner},
          {"down", "mlp.down_proj", shape.width}};
}

std::string adapter_config(const TextModel& model, const std::vector<std::string>& targets) {
  const LoraOptions& lora = *model.shape.lora;
  const nlohmann::ordered_json base =
      model.folder.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(model.folder.string());
  const nlohmann::ordered_json json = {{"peft_type", "LORA"},
                                       {"task_type", "CAUSAL_LM"},
                                       {"base_model_name_or_path", base},
                                       {"r", lora.rank},
                                       {"lora_alpha", lora.alpha},
                                       {"lora_dropout", 0.0},
                                       {"target_modules", targets},
                                       {"fan_in_fan_out", model.shape.family == TransformerFamily::gpt2},
                                       {"bias", "none"},
                                       {"use_rslora", false},
                                       {"inference_mode", true}};
  return json.dump(2) + "\n";
}

/// Adapters as PEFT has them. Null where it has none beside such layers: of one matrix for queries, keys and
/// values it has one adapter, of three it has three.
std::shared_ptr<const PublishedFormat> adapter_format(const TextModel& model) {
  const TransformerShape& shape = model.shape;
  const auto layers = adapted_layers(shape);
  std::vector<std::string> targets;
  Table table(shape);
  for (const AdaptedLayer& layer : layers) {
    if (!shape.lora->has(layer.layer)) continue;
    targets.emplace_back(layer.theirs);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
      const bool gpt2 = shape.family == TransformerFamily::gpt2;
      table.adapter(fmt::format("blocks.{}.", i), layer.layer,
                    fmt::format("{}.{}.{}", gpt2 ? "transformer.h" : "model.layers", i, layer.theirs),
                    layer.rows);
    }
  }
  if (targets.size() < shape.lora->on.size()) return nullptr;
  PublishedFormat format;
  format.name = "peft";
  format.config = adapter_config(model, targets);
  format.tensors = table.take();
  format.canonical = [](std::string_view saved) { return std::string(saved); };
  format.config_file = "adapter_config.json";
  format.weights_file = "adapter_model.safetensors";
  return std::make_shared<const PublishedFormat>(std::move(format));
}

/// The first files call a norm's weight gamma and its bias beta; some repeat what is tied, and count
/// positions.
std::string bert_canonical(std::string_view saved, bool tied) {
  if (saved.ends_with("embeddings.position_ids") || saved == "cls.predictions.decoder.bias") return "";
  if (tied && saved == "cls.predictions.decoder.weight") return "";
  for (const auto& [old, now] :
       {std::pair<std::string_view, std::string_view>{".gamma", ".weight"}, {".beta", ".bias"}}) {
    if (saved.ends_with(old)) return fmt::format("{}{}", saved.substr(0, saved.size() - old.size()), now);
  }
  return std::string(saved);
}

/// The files of the first releases have no "transformer." in front, and masks that are no weights.
std::string gpt2_canonical(std::string_view saved, bool tied) {
  const bool mask = saved.find(".attn.") != std::string_view::npos &&
                    (saved.ends_with(".attn.bias") || saved.ends_with(".attn.masked_bias"));
  if (mask || (tied && saved == "lm_head.weight")) return "";
  const bool bare = saved.starts_with("wte.") || saved.starts_with("wpe.") || saved.starts_with("h.") ||
                    saved.starts_with("ln_f.");
  return bare ? fmt::format("transformer.{}", saved) : std::string(saved);
}

/// Some files have the angles' frequencies, and a head beside the table that it is tied to.
std::string llama_canonical(std::string_view saved, bool tied) {
  if (saved.ends_with("rotary_emb.inv_freq") || (tied && saved == "lm_head.weight")) return "";
  return std::string(saved);
}

}  // namespace

std::optional<PublishedFormat> published_format(const TextModel& model) {
  const TransformerShape& shape = model.shape;
  if (shape.family == TransformerFamily::own) return std::nullopt;
  PublishedFormat format{.name = "huggingface",
                         .config = model.config.empty() ? text_config(shape, model.heads) : model.config,
                         .tensors = {},
                         .canonical = {},
                         .dtype = model.dtype,
                         .folder = model.folder};
  const bool tied = shape.tied;
  if (shape.lora) {
    format.merged = [lora = *shape.lora, heads = shape.head_shape()](const NamedTensors& state) {
      return merge_adapters(state, lora, heads);
    };
    format.adapters = adapter_format(model);
  }
  switch (shape.family) {
    case TransformerFamily::gpt2:
      format.tensors = gpt2_names(shape);
      format.canonical = [tied](std::string_view saved) { return gpt2_canonical(saved, tied); };
      return format;
    case TransformerFamily::llama:
      format.tensors = llama_names(shape);
      format.canonical = [tied](std::string_view saved) { return llama_canonical(saved, tied); };
      return format;
    case TransformerFamily::bert:
      format.tensors = bert_names(shape, model.heads);
      format.canonical = [tied](std::string_view saved) { return bert_canonical(saved, tied); };
      return format;
    case TransformerFamily::own:
      break;
  }
  return std::nullopt;
}

}  // namespace dtrain
