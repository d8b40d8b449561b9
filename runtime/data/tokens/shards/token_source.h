// Windows of tokens: what a language model learns from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.h"
#include "runtime/data/tokens/shards/token_file.h"

namespace dtrain {

/// What windows make of the documents that files consist of.
enum class DocumentWindows {
  joined,  ///< nothing: they are one text
  apart,   ///< windows are the same, and say where in them documents begin
  whole,   ///< windows begin with a document and have as many whole ones as fit, but for those that fit none
};

struct WindowOptions {
  std::int64_t context = 64;
  std::int64_t stride = 64;
  std::int64_t vocabulary = 0;
  DocumentWindows documents = DocumentWindows::joined;
};

/// Samples are `tokens` int32 [context + 1] of one file each: window i of a file begins at its token i ·
/// stride. The windows of all files are numbered one after the other, so that an epoch is a permutation of
/// all. What does not fill a window at a file's end is left out.
///
/// Unless documents are joined, samples also have `documents` int32 [context + 1]: where in the window the
/// document of each token begins, 0 for one that began before. Windows of whole documents take them in the
/// order of the file, one that does not fit behind others begins the next window, and one that fits no window
/// takes several, each of which begins with the last token of the one before. A window that is not full ends
/// with tokens 0, each a document of its own.
///
/// Where a file has tokens that are not asked for, samples also have `asked` uint8 [context + 1], 1 or 0.
class TokenSource final : public Source {
 public:
  /// Throws UsageError for a context or stride below 1, a vocabulary below 1, files without a window, and
  /// where documents count for files that do not say where they begin, or, as wholes, for another stride than
  /// the context.
  TokenSource(std::string name, std::vector<TokenFile> files, const WindowOptions& options);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return begins_.back(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool in_memory() const noexcept override;

 private:
  /// Some of a file's tokens.
  struct Range {
    std::int64_t first, count;
  };
  Range range_of(std::size_t file, std::int64_t window) const;

  std::string name_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_{0};  ///< the first window of each file, and how many there are
  WindowOptions options_;
  bool has_asked_ = false;
  std::vector<std::vector<std::int64_t>> firsts_;  ///< of windows of whole documents, by file
  std::vector<Field> fields_;
};

}  // namespace dtrain
