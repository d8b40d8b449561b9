// A language model that is used: its network, and how texts become its tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/text/transformer.h"
#include "runtime/base/log.h"
#include "runtime/data/tokens/tokenizer.h"

namespace dtrain {

/// A network and how its tokens are read.
struct LanguageModel {
  std::unique_ptr<Module> network;
  std::string tokenizer;           ///< a file or folder; empty: tokens are bytes
  std::vector<std::int32_t> ends;  ///< what config.json says ends a text

  Transformer& transformer() const { return dynamic_cast<Transformer&>(*network); }
};

/// Of a folder of published weights or of a run; `checkpoint` of that if it is not empty. Throws UsageError
/// for what is no language model.
LanguageModel open_language_model(const std::filesystem::path& path, const std::string& checkpoint,
                                  const std::shared_ptr<Device>& device, Log& log);

/// What a data set was tokenized with, as its name says; empty: nothing.
std::string tokenizer_in(const std::string& dataset);

/// Text to tokens and back, by a tokenizer or byte by byte.
class Words {
 public:
  /// `path`: a tokenizer's file or folder; empty: bytes. Throws UsageError where a model of `vocabulary` has
  /// fewer tokens than that.
  Words(const std::string& path, std::int64_t vocabulary);
  std::vector<std::int32_t> encode(const std::string& text) const;
  /// Tokens beyond the tokenizer's, which a padded vocabulary has, stand for nothing.
  std::string decode(std::span<const std::int32_t> tokens) const;
  std::optional<std::int32_t> end() const { return tokenizer_ ? tokenizer_->end_of_text() : std::nullopt; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace dtrain
