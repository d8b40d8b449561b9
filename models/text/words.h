// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/tokens/tokenizer.h"

namespace dtrain {

/// What a data set whose files are in `folder` was tokenized with, as its name says
/// ("tokens:…,tokenizer=FILE"); empty: nothing.
std::string tokenizer_in(const std::string& dataset, const std::filesystem::path& folder);

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
