// config.json of published language models, to and from a TransformerShape.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "models/text/text_model.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/json/strict_json.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kConfigDepth = 16;
constexpr std::int64_t kLargest = std::int64_t{1} << 31;

/// Reads keys of one object of a file; what is not as it must be is named.
class Keys {
 public:
  Keys(const Json& object, const fs::path& path) : object_(object), path_(path) {}

  bool contains(const char* key) const { return object_.contains(key); }
  /// Has a value other than null.
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  std::int64_t count(const char* key) const {
    if (!has(key)) refuse(key, "a whole number", "none");
    return count(key, 0);
  }
  std::int64_t count(const char* key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const Json& value = object_[key];
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > kLargest)
      refuse(key, "a whole number of at least 1", value.dump());
    return value.get<std::int64_t>();
  }
  /// A whole number from 0 to below `end`.
  std::int64_t index(const char* key, std::int64_t end) const {
    const Json& value = object_[key];
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() >= end)
      refuse(key, fmt::format("a whole number from 0 to below {}", end), value.dump());
    return value.get<std::int64_t>();
  }
  double real(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_number()) refuse(key, "a number", object_[key].dump());
    return object_[key].get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_boolean()) refuse(key, "true or false", object_[key].dump());
    return object_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_string()) refuse(key, "a text", object_[key].dump());
    return object_[key].get<std::string>();
  }
  /// What changes the numbers, in a way that is not built.
  void expect(const char* key, const Json& value) const {
    if (has(key) && object_[key] != value) refuse(key, value.dump(), object_[key].dump());
  }
  /// The first of a list of texts.
  std::string first_text(const char* key, const std::string& otherwise) const {
    if (!has(key) || (object_[key].is_array() && object_[key].empty())) return otherwise;
    if (!object_[key].is_array() || !object_[key][0].is_string())
      refuse(key, "a list of texts", object_[key].dump());
    return object_[key][0].get<std::string>();
  }
  std::size_t size() const { return object_.size(); }
  Keys object(const char* key) const {
    static const Json kNone = Json::object();
    if (!has(key)) return {kNone, path_};
    if (!object_[key].is_object()) refuse(key, "an object", object_[key].dump());
    return {object_[key], path_};
  }
  [[noreturn]] void refuse(const char* key, const std::string& expected, const std::string& found) const {
    throw DataError(path_.string(), -1, fmt::format("{}: {}", key, expected), found);
  }

 private:
  const Json& object_;
  const fs::path& path_;
};

FeedForward activation_of(const Keys& keys, const char* key, const std::string& otherwise) {
  const std::string name = keys.text(key, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return FeedForward::gelu_tanh;
  if (name == "gelu") return FeedForward::gelu;
  if (name == "relu") return FeedForward::relu;
  keys.refuse(key, "gelu, gelu_new, gelu_pytorch_tanh or relu", name);
}

TransformerShape gpt2_shape(const Keys& keys) {
  keys.expect("scale_attn_weights", true);
  keys.expect("scale_attn_by_inverse_layer_idx", false);
  keys.expect("add_cross_attention", false);
  return {.vocabulary = keys.count("vocab_size", 50257),
          .context = keys.count("n_positions", keys.count("n_ctx", 1024)),
          .width = keys.count("n_embd", 768),
          .heads = keys.count("n_head", 12),
          .layers = keys.count("n_layer", 12),
          .tied = keys.flag("tie_word_embeddings", true),
          .family = TransformerFamily::gpt2,
          .inner = keys.count("n_inner", 0),
          .norm_eps = keys.real("layer_norm_epsilon", 1e-5),
          .feed_forward = activation_of(keys, "activation_function", "gelu_new"),
          .initial_deviation = keys.real("initializer_range", 0.02)};
}

/// The angles, as files of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters) have them.
RotaryOptions rotary_of(const Keys& keys) {
  const Keys rope = keys.object(keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  RotaryOptions options{.theta = rope.real("rope_theta", keys.real("rope_theta", 10000))};
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return options;
  if (type != "llama3") rope.refuse("rope_type", "default or llama3", type);
  options.scaling = RotaryScaling{.factor = rope.real("factor", 8),
                                  .low_factor = rope.real("low_freq_factor", 1),
                                  .high_factor = rope.real("high_freq_factor", 4),
                                  .original_positions = rope.count("original_max_position_embeddings")};
  return options;
}

std::optional<std::int64_t> padding_of(const Keys& keys) {
  if (!keys.has("pad_token_id")) return std::nullopt;
  return keys.index("pad_token_id", keys.count("vocab_size", kLargest));
}

TransformerShape llama_shape(const Keys& keys, const std::string& type) {
  const bool qwen = type == "qwen2";
  keys.expect("hidden_act", "silu");
  keys.expect("use_sliding_window", false);
  const std::int64_t context = keys.count("max_position_embeddings", qwen ? 32768 : 2048);
  if (!qwen && keys.count("sliding_window", context) < context)
    keys.refuse("sliding_window", "null, or at least max_position_embeddings",
                std::to_string(keys.count("sliding_window")));
  const bool bias = keys.flag("attention_bias", false);
  const std::int64_t heads = keys.count("num_attention_heads");
  return {.vocabulary = keys.count("vocab_size"),
          .context = context,
          .width = keys.count("hidden_size"),
          .heads = heads,
          .layers = keys.count("num_hidden_layers"),
          .tied = keys.flag("tie_word_embeddings", false),
          .family = TransformerFamily::llama,
          .kv_heads = keys.count("num_key_value_heads", heads),
          .head_width = keys.count("head_dim", 0),
          .inner = keys.count("intermediate_size"),
          .norm = TransformerNorm::rms,
          .norm_eps = keys.real("rms_norm_eps", 1e-6),
          .feed_forward = FeedForward::swiglu,
          .qkv_bias = qwen || bias,
          .proj_bias = !qwen && bias,
          .inner_bias = keys.flag("mlp_bias", false),
          .rotary = rotary_of(keys),
          .padding = padding_of(keys),
          .initial_deviation = keys.real("initializer_range", 0.02)};
}

TransformerShape bert_shape(const Keys& keys) {
  keys.expect("position_embedding_type", "absolute");
  keys.expect("is_decoder", false);
  return {.vocabulary = keys.count("vocab_size", 30522),
          .context = keys.count("max_position_embeddings", 512),
          .width = keys.count("hidden_size", 768),
          .heads = keys.count("num_attention_heads", 12),
          .layers = keys.count("num_hidden_layers", 12),
          .tied = keys.flag("tie_word_embeddings", true),
          .family = TransformerFamily::bert,
          .inner = keys.count("intermediate_size", 3072),
          .norm_eps = keys.real("layer_norm_eps", 1e-12),
          .feed_forward = activation_of(keys, "hidden_act", "gelu"),
          .segments = keys.count("type_vocab_size", 2),
          .padding = keys.contains("pad_token_id") ? padding_of(keys) : 0,
          .initial_deviation = keys.real("initializer_range", 0.02)};
}

DType saved_dtype(const Keys& keys) {
  const std::string name = keys.text("dtype", keys.text("torch_dtype", "float32"));
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  keys.refuse("dtype", "float32, bfloat16 or float16", name);
}

const char* activation_name(FeedForward kind) {
  switch (kind) {
    case FeedForward::gelu:
      return "gelu";
    case FeedForward::gelu_tanh:
      return "gelu_new";
    case FeedForward::relu:
      return "relu";
    case FeedForward::swiglu:
      break;
  }
  return "silu";
}

nlohmann::ordered_json padding_json(const TransformerShape& shape) {
  return shape.padding ? nlohmann::ordered_json(*shape.padding) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json gpt2_json(const TransformerShape& shape) {
  const bool published = shape.vocabulary == 50257;
  const nlohmann::ordered_json end = published ? nlohmann::ordered_json(50256) : nullptr;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", shape.vocabulary},
          {"n_positions", shape.context},
          {"n_embd", shape.width},
          {"n_layer", shape.layers},
          {"n_head", shape.heads},
          {"n_inner", shape.inner_width()},
          {"activation_function", activation_name(shape.feed_forward)},
          {"resid_pdrop", shape.dropout},
          {"embd_pdrop", shape.dropout},
          {"attn_pdrop", 0.0},
          {"layer_norm_epsilon", shape.norm_eps},
          {"initializer_range", shape.initial_deviation},
          {"tie_word_embeddings", shape.tied},
          {"bos_token_id", end},
          {"eos_token_id", end}};
}

nlohmann::ordered_json llama_json(const TransformerShape& shape) {
  const HeadShape heads = shape.head_shape();
  nlohmann::ordered_json rope = {{"rope_theta", shape.rotary->theta}, {"rope_type", "default"}};
  if (const auto& scaling = shape.rotary->scaling) {
    rope = {{"rope_theta", shape.rotary->theta},
            {"rope_type", "llama3"},
            {"factor", scaling->factor},
            {"low_freq_factor", scaling->low_factor},
            {"high_freq_factor", scaling->high_factor},
            {"original_max_position_embeddings", scaling->original_positions}};
  }
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", shape.vocabulary},
          {"max_position_embeddings", shape.context},
          {"hidden_size", shape.width},
          {"intermediate_size", shape.inner_width()},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", heads.heads},
          {"num_key_value_heads", heads.kv_heads},
          {"head_dim", heads.head_width},
          {"hidden_act", "silu"},
          {"rms_norm_eps", shape.norm_eps},
          {"initializer_range", shape.initial_deviation},
          {"attention_bias", shape.qkv_bias},
          {"mlp_bias", shape.inner_bias},
          {"rope_parameters", rope},
          {"rope_theta", shape.rotary->theta},
          {"pad_token_id", padding_json(shape)},
          {"tie_word_embeddings", shape.tied},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

const char* bert_architecture(const BertHeads& heads) {
  if (heads.classes > 0) return "BertForSequenceClassification";
  return heads.next_sentence ? "BertForPreTraining" : "BertForMaskedLM";
}

BertHeads bert_heads(const Keys& keys) {
  const std::string name = keys.first_text("architectures", "BertForPreTraining");
  if (name == "BertForPreTraining") return {};
  if (name == "BertForMaskedLM") return {.next_sentence = false};
  if (name != "BertForSequenceClassification")
    keys.refuse("architectures", "BertForPreTraining, BertForMaskedLM or BertForSequenceClassification",
                name);
  const std::int64_t classes = static_cast<std::int64_t>(keys.object("id2label").size());
  return {
      .words = false, .next_sentence = false, .classes = classes > 0 ? classes : keys.count("num_labels", 2)};
}

nlohmann::ordered_json bert_json(const TransformerShape& shape, const BertHeads& heads) {
  nlohmann::ordered_json labels = nlohmann::ordered_json::object();
  for (std::int64_t i = 0; i < heads.classes; ++i) labels[std::to_string(i)] = fmt::format("LABEL_{}", i);
  return {{"architectures", {bert_architecture(heads)}},
          {"id2label", labels},
          {"model_type", "bert"},
          {"vocab_size", shape.vocabulary},
          {"max_position_embeddings", shape.context},
          {"hidden_size", shape.width},
          {"intermediate_size", shape.inner_width()},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"hidden_act", activation_name(shape.feed_forward)},
          {"hidden_dropout_prob", shape.dropout},
          {"attention_probs_dropout_prob", 0.0},
          {"layer_norm_eps", shape.norm_eps},
          {"initializer_range", shape.initial_deviation},
          {"type_vocab_size", shape.segments},
          {"pad_token_id", padding_json(shape)},
          {"tie_word_embeddings", shape.tied}};
}

}  // namespace

TextModel read_text_config(const fs::path& path) {
  std::ifstream in(path);
  if (!in) throw DataError(path.string(), -1, "a config.json of published weights", "no such file");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Json json = parse_strict_json(text, path, 0, kConfigDepth);
  if (!json.is_object()) throw DataError(path.string(), -1, "one JSON object", kind_of(json));
  const Keys keys(json, path);
  const std::string type = keys.text("model_type", "none");
  TextModel model{
      .name = type, .shape = {}, .config = text, .folder = path.parent_path(), .dtype = saved_dtype(keys)};
  if (type == "gpt2") {
    model.shape = gpt2_shape(keys);
  } else if (type == "llama" || type == "mistral" || type == "qwen2") {
    model.shape = llama_shape(keys, type);
  } else if (type == "bert") {
    model.shape = bert_shape(keys);
    model.heads = bert_heads(keys);
  } else {
    keys.refuse("model_type", "gpt2, llama, mistral, qwen2 or bert", type);
  }
  model.shape.table_deviation = model.shape.initial_deviation;
  return model;
}

std::string text_config(const TransformerShape& shape, const BertHeads& heads) {
  nlohmann::ordered_json json;
  if (shape.family == TransformerFamily::gpt2) json = gpt2_json(shape);
  if (shape.family == TransformerFamily::llama) json = llama_json(shape);
  if (shape.family == TransformerFamily::bert) json = bert_json(shape, heads);
  if (heads.classes == 0) json.erase("id2label");
  json["dtype"] = "float32";
  return json.dump(2) + "\n";
}

}  // namespace dtrain
