#include "models/text/text_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "hf:", kLlamaFile = "llama:";
constexpr double kPublishedDeviation = 0.02;

constexpr std::array<std::string_view, 9> kNames = {"transformer", "gpt2",      "gpt2-medium",
                                                    "gpt2-large",  "gpt2-xl",   "gpt2-tiny",
                                                    "llama-tiny",  "bert-base", "bert-tiny"};

TransformerShape gpt2(std::int64_t width, std::int64_t heads, std::int64_t layers) {
  return {.vocabulary = 50257,
          .context = 1024,
          .width = width,
          .heads = heads,
          .layers = layers,
          .tied = true,
          .family = TransformerFamily::gpt2,
          .feed_forward = FeedForward::gelu_tanh,
          .initial_deviation = kPublishedDeviation};
}

TransformerShape bert(std::int64_t width, std::int64_t heads, std::int64_t layers) {
  return {.vocabulary = 30522,
          .context = 512,
          .width = width,
          .heads = heads,
          .layers = layers,
          .tied = true,
          .family = TransformerFamily::bert,
          .norm_eps = 1e-12,
          .segments = 2,
          .padding = 0,
          .initial_deviation = kPublishedDeviation};
}

TransformerShape llama_tiny() {
  return {.width = 64,
          .heads = 4,
          .layers = 2,
          .family = TransformerFamily::llama,
          .kv_heads = 2,
          .inner = 192,
          .norm = TransformerNorm::rms,
          .feed_forward = FeedForward::swiglu,
          .qkv_bias = false,
          .proj_bias = false,
          .inner_bias = false,
          .rotary = RotaryOptions{},
          .initial_deviation = kPublishedDeviation};
}

/// Of the data's vocabulary and context.
TransformerShape tiny(TransformerShape shape) {
  shape.vocabulary = shape.context = 0;
  return shape;
}

TransformerShape shape_named(std::string_view name) {
  if (name == "gpt2") return gpt2(768, 12, 12);
  if (name == "gpt2-medium") return gpt2(1024, 16, 24);
  if (name == "gpt2-large") return gpt2(1280, 20, 36);
  if (name == "gpt2-xl") return gpt2(1600, 25, 48);
  if (name == "gpt2-tiny") return tiny(gpt2(64, 4, 2));
  if (name == "llama-tiny") return tiny(llama_tiny());
  if (name == "bert-base") return bert(768, 12, 12);
  if (name == "bert-tiny") return tiny(bert(64, 4, 2));
  return tiny({});
}

/// A run, and its checkpoints, have the name that the user gave.
TextModel named(std::string_view name, TextModel model) {
  model.name = name;
  return model;
}

}  // namespace

std::span<const std::string_view> text_model_names() { return kNames; }

bool is_text_model(std::string_view model) {
  return model.starts_with(kFolder) || model.starts_with(kLlamaFile) ||
         std::ranges::find(kNames, model) != kNames.end();
}

TextModel text_model(std::string_view model) {
  if (!is_text_model(model))
    throw UsageError(fmt::format("model: expected one of {}, hf:DIR or llama:FILE, got '{}'",
                                 fmt::join(kNames, ", "), model));
  if (model.starts_with(kFolder))
    return named(model, read_text_config(fs::path(model.substr(kFolder.size())) / "config.json"));
  if (model.starts_with(kLlamaFile)) {
    const fs::path path = model.substr(kLlamaFile.size());
    const TextModel read = read_text_config(path);
    if (read.shape.family == TransformerFamily::llama) return named(model, read);
    throw DataError(path.string(), -1, "a model of LLaMA's class", fmt::format("model_type {}", read.name));
  }
  return {.name = std::string(model), .shape = shape_named(model)};
}

}  // namespace dtrain
