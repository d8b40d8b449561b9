// Language models by name, or as config.json of published weights describes them.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/text/bert.h"
#include "models/text/transformer_shape.h"
#include "training/published_format.h"

namespace dtrain {

/// A network and where it is from.
struct TextModel {
  std::string name;         ///< as text_model() was asked for it; of a config.json its model_type, "qwen2"
  TransformerShape shape;   ///< vocabulary and context 0: those of the data
  std::string config = {};  ///< text of its config.json; empty: it has none
  std::filesystem::path folder = {};  ///< of that file
  DType dtype = DType::f32;           ///< of the published weights
  BertHeads heads = {};               ///< of a BERT
  std::string tokenizer = {};         ///< a file or folder, to show texts by; empty: tokens are bytes
};

/// Names that text_model knows: "transformer", "gpt2", "gpt2-medium", "llama-tiny", …
std::span<const std::string_view> text_model_names();
/// Whether text_model takes `model`: one of these names, or "hf:DIR" or "llama:FILE".
bool is_text_model(std::string_view model);

/// The model called `model`; of "hf:DIR" the one that DIR/config.json describes, of "llama:FILE" that of such
/// a file. Throws UsageError for a name that is not known, DataError for a file that describes no model which
/// is.
TextModel text_model(std::string_view model);

/// Reads config.json: GPT-2's, LLaMA's, Mistral's, Qwen2's or BERT's. Throws DataError that names the key,
/// what was expected and found: for another architecture, and for what changes the numbers and is not built.
TextModel read_text_config(const std::filesystem::path& path);
/// Such a file for `shape`, which is not of the family `own`; `heads` are a BERT's.
std::string text_config(const TransformerShape& shape, const BertHeads& heads = {});

/// How the weights of `model`, whose vocabulary and context are known, are published; nothing where nobody
/// does.
std::optional<PublishedFormat> published_format(const TextModel& model);

}  // namespace dtrain
