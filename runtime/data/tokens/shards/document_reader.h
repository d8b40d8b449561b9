// Reads documents out of text files, front to back, in pieces that fit memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/cache/content_reader.h"

namespace dtrain {

/// Where in the inputs something is.
struct DocumentPosition {
  std::int64_t input = 0;   ///< number of the file
  std::int64_t offset = 0;  ///< bytes of its content, inflated

  bool operator==(const DocumentPosition&) const = default;
};

/// A text or a part of one.
struct DocumentText {
  std::string text;
  std::string prompt = {};          ///< in front of it, not to be learned
  bool begins = true, ends = true;  ///< whether the document does with it
};

/// A few documents, or parts of one.
struct DocumentPiece {
  std::vector<DocumentText> parts;
  DocumentPosition end;  ///< behind it

  std::int64_t text_bytes() const noexcept {
    std::int64_t bytes = 0;
    for (const DocumentText& part : parts)
      bytes += static_cast<std::int64_t>(part.prompt.size() + part.text.size());
    return bytes;
  }
};

/// What a line's object has the parts of a document in.
struct DocumentFields {
  std::string text = "text";
  std::string prompt = {};  ///< empty: none
};

/// *.txt: a file is a document. *.jsonl: a line is an object with the document's text. Each may be gzip
/// (*.txt.gz). Not thread-safe.
class DocumentReader {
 public:
  /// Texts are cut, where `cut_long` allows it, between a letter and the line end behind it. Throws
  /// UsageError for another kind of file, DataError for one that is missing.
  DocumentReader(std::vector<std::string> inputs, DocumentFields fields, bool cut_long,
                 const DocumentPosition& from);

  /// The next piece, of about `bytes`; false at the end of the inputs. Throws DataError (path, offset,
  /// expected, found) for what is not UTF-8, an empty document, a line that is no object or has no such text.
  bool next(DocumentPiece& piece, std::size_t bytes);

 private:
  bool open_next();
  bool fill();
  std::string_view rest() const noexcept { return std::string_view(buffer_).substr(begin_); }
  void consume(std::size_t count) noexcept {
    begin_ += count;
    at_.offset += static_cast<std::int64_t>(count);
  }
  void take(DocumentPiece& piece, std::size_t count, bool ends);
  void read_text(DocumentPiece& piece, std::size_t bytes);
  void read_lines(DocumentPiece& piece, std::size_t bytes);
  DocumentText document_of(std::string_view line) const;
  [[noreturn]] void refuse(std::int64_t at, const std::string& expected, const std::string& found) const;

  std::vector<std::string> inputs_;
  DocumentFields fields_;
  bool cut_long_;
  DocumentPosition at_;  ///< of what rest() begins with
  std::unique_ptr<ContentReader> reader_;
  std::string buffer_;
  std::size_t begin_ = 0;                ///< what is in front of it has been taken
  bool ended_ = false, inside_ = false;  ///< the file was read to its end; a text has begun
};

/// Throws UsageError where a file is not of a kind that is read: *.txt has no prompts.
void check_document_files(const std::vector<std::string>& inputs, bool prompts = false);

}  // namespace dtrain
