#include "runtime/data/tokens/shards/document_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::size_t kRead = 1 << 20;

bool is_kind(std::string_view path, std::string_view kind) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(kind);
}

/// Where `text` can be cut so that the words of both sides are those of the whole: the last place with a
/// letter in front of a line's end; 0 where there is none.
std::size_t last_cut(std::string_view text) {
  for (std::size_t at = text.size(); at-- > 1;) {
    const auto before = static_cast<unsigned char>(text[at - 1] | 0x20);
    if (text[at] == '\n' && before >= 'a' && before <= 'z') return at;
  }
  return 0;
}

/// What to do about an object without the text that was asked for.
std::string_view instead_of(const nlohmann::json& object) {
  for (const char* const chat : {"messages", "conversations"}) {
    if (object.is_object() && object.contains(chat))
      return " (a chat is not read as it is, as its form is the model's: write what the model is given as a "
             "prompt and its answer as a text)";
  }
  return "";
}

}  // namespace

void check_document_files(const std::vector<std::string>& inputs, bool prompts) {
  for (const std::string& path : inputs) {
    if (is_kind(path, ".jsonl")) continue;
    if (path.ends_with(".parquet"))
      throw UsageError(fmt::format(
          "{}: expected *.txt or *.jsonl, got Parquet, which is not read; convert it, as with pandas: "
          "read_parquet(\"{}\").to_json(\"{}.jsonl.gz\", orient=\"records\", lines=True)",
          path, path, path.substr(0, path.rfind('.'))));
    if (prompts)
      throw UsageError(
          fmt::format("{}: expected *.jsonl, which have prompts, got another kind of file", path));
    if (is_kind(path, ".txt")) continue;
    throw UsageError(fmt::format(
        "{}: expected *.txt or *.jsonl, or one of them with .gz, got another kind of file", path));
  }
}

DocumentReader::DocumentReader(std::vector<std::string> inputs, DocumentFields fields, bool cut_long,
                               const DocumentPosition& from)
    : inputs_(std::move(inputs)), fields_(std::move(fields)), cut_long_(cut_long), at_(from) {
  check_document_files(inputs_, !fields_.prompt.empty());
}

void DocumentReader::refuse(std::int64_t at, const std::string& expected, const std::string& found) const {
  throw DataError(inputs_[static_cast<std::size_t>(at_.input)], at, expected, found);
}

/// Opens the file that at_ is in, at its offset; false where there is none left.
bool DocumentReader::open_next() {
  if (at_.input >= static_cast<std::int64_t>(inputs_.size())) return false;
  reader_ = std::make_unique<ContentReader>(inputs_[static_cast<std::size_t>(at_.input)], "text");
  ended_ = inside_ = false;
  std::vector<std::uint8_t> skipped(kRead);
  for (std::int64_t left = at_.offset; left > 0;) {
    const std::size_t count =
        reader_->read(std::span(skipped).first(std::min<std::size_t>(kRead, static_cast<std::size_t>(left))));
    if (count == 0)
      refuse(static_cast<std::int64_t>(reader_->position()),
             fmt::format("the {} bytes that were read before", at_.offset), "the end of the file");
    left -= static_cast<std::int64_t>(count);
  }
  return true;
}

/// Appends to the buffer; false at the file's end.
bool DocumentReader::fill() {
  if (ended_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kRead);
  const std::size_t count = reader_->read({reinterpret_cast<std::uint8_t*>(buffer_.data()) + before, kRead});
  buffer_.resize(before + count);
  ended_ = count < kRead;
  return count > 0;
}

/// The first `count` bytes of the buffer as a part of a text.
void DocumentReader::take(DocumentPiece& piece, std::size_t count, bool ends) {
  DocumentText part{std::string(rest().substr(0, count)), {}, !inside_, ends};
  if (const std::size_t valid = valid_utf8(part.text); valid < count)
    refuse(at_.offset + static_cast<std::int64_t>(valid), "UTF-8",
           fmt::format("the byte 0x{:02x}", static_cast<unsigned char>(part.text[valid])));
  if (part.begins && ends && count == 0) refuse(at_.offset, "a document", "an empty one");
  piece.parts.push_back(std::move(part));
  consume(count);
  inside_ = !ends;
}

void DocumentReader::read_text(DocumentPiece& piece, std::size_t bytes) {
  for (;;) {
    while (rest().size() < bytes && fill()) {
    }
    const std::size_t cut = cut_long_ && rest().size() >= bytes ? last_cut(rest()) : 0;
    if (cut > 0) return take(piece, cut, false);
    if (ended_) return take(piece, rest().size(), true);
    bytes = 2 * rest().size();  // no place to cut yet
  }
}

DocumentText DocumentReader::document_of(std::string_view line) const {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    refuse(at_.offset + static_cast<std::int64_t>(error.byte), "a line of JSON", error.what());
  }
  const auto text_of = [&](const std::string& field) {
    const auto text = object.is_object() ? object.find(field) : object.end();
    if (text == object.end() || !text->is_string())
      refuse(at_.offset, fmt::format("an object with a text \"{}\"{}", field, instead_of(object)),
             printable(line.substr(0, 60)));
    return text->get<std::string>();
  };
  DocumentText document{text_of(fields_.text)};
  if (document.text.empty()) refuse(at_.offset, "a document", "an empty one");
  if (!fields_.prompt.empty()) document.prompt = text_of(fields_.prompt);
  return document;
}

void DocumentReader::read_lines(DocumentPiece& piece, std::size_t bytes) {
  for (std::size_t taken = 0; taken < bytes;) {
    while (rest().find('\n') == std::string_view::npos && fill()) {
    }
    if (rest().empty()) return;
    const std::size_t count = std::min(rest().find('\n'), rest().size());
    const std::string_view line = rest().substr(0, count);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      piece.parts.push_back(document_of(line));
      taken += piece.parts.back().text.size();
    }
    consume(std::min(count + 1, rest().size()));
  }
}

bool DocumentReader::next(DocumentPiece& piece, std::size_t bytes) {
  piece.parts.clear();
  while (piece.parts.empty()) {
    if (!reader_ && !open_next()) return false;
    if (is_kind(inputs_[static_cast<std::size_t>(at_.input)], ".txt")) {
      read_text(piece, bytes);
    } else {
      read_lines(piece, bytes);
    }
    if (ended_ && rest().empty() && !inside_) {
      reader_.reset();
      at_ = {at_.input + 1, 0};
    }
    piece.end = at_;
  }
  return true;
}

}  // namespace dtrain
