#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain {
namespace {

std::string json_text(std::string_view bytes) { return nlohmann::json(visible_bytes(bytes)).dump(); }

}  // namespace

std::string write_tokenizer_json(const LearnedPairs& learned) {
  std::string vocabulary, merges;
  for (std::size_t i = 0; i < learned.tokens.size(); ++i)
    fmt::format_to(std::back_inserter(vocabulary), "{}\n      {}: {}", i == 0 ? "" : ",",
                   json_text(learned.tokens[i]), i);
  for (const auto& [left, right] : learned.merges)
    fmt::format_to(std::back_inserter(merges), "{}\n      [{}, {}]", merges.empty() ? "" : ",",
                   json_text(learned.tokens[static_cast<std::size_t>(left)]),
                   json_text(learned.tokens[static_cast<std::size_t>(right)]));
  return fmt::format(R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{{"id": 0, "content": "{}", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}}],
  "normalizer": null,
  "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}},
  "post_processor": null,
  "decoder": {{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}},
  "model": {{
    "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {{{}}},
    "merges": [{}]
  }}
}}
)",
                     kEndOfText, vocabulary, merges);
}

}  // namespace dtrain
