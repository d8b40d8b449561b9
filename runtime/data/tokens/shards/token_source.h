// Windows of tokens: what a language model learns from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.h"
#include "runtime/data/tokens/shards/token_file.h"

namespace dtrain {

/// Samples are `tokens` int32 [context + 1] of one file each: window i of a file begins at its token i ·
/// stride. The windows of all files are numbered one after the other, so that an epoch is a permutation of
/// all. What does not fill a window at a file's end is left out.
class TokenSource final : public Source {
 public:
  /// Throws UsageError for a context or stride below 1, a vocabulary below 1, and files without a window.
  TokenSource(std::string name, std::vector<TokenFile> files, std::int64_t context, std::int64_t stride,
              std::int64_t vocabulary);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return begins_.back(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool in_memory() const noexcept override;

 private:
  std::string name_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_{0};  ///< the first window of each file, and how many there are
  std::int64_t context_, stride_;
  std::vector<Field> fields_;
};

}  // namespace dtrain
