#include "runtime/data/sources/text_source.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/source_spec.h"
#include "runtime/data/tokens/shards/token_source.h"
#include "runtime/data/tokens/tokenizer.h"

namespace dtrain {
namespace {

constexpr std::int64_t kBytes = 256;

std::shared_ptr<const std::string> read_text(const std::string& path) {
  ContentReader reader(path, "a text file");
  std::string text;
  std::vector<std::uint8_t> buffer(1U << 16);
  while (const std::size_t count = reader.read(buffer)) {
    text.append(reinterpret_cast<const char*>(buffer.data()), count);
  }
  return std::make_shared<const std::string>(std::move(text));
}

/// The file's text as tokens in memory.
TokenFile tokenized(const std::string& path, const std::shared_ptr<const Tokenizer>& tokenizer) {
  const auto text = read_text(path);
  if (const std::size_t valid = valid_utf8(*text); valid < text->size())
    throw DataError(path, static_cast<std::int64_t>(valid), "UTF-8", "other bytes");
  auto tokens = std::make_shared<std::vector<std::int32_t>>();
  Encoder(tokenizer).encode(*text, *tokens);
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(tokens->data()),
                        tokens->size() * sizeof(std::int32_t));
  return {path, "a text's", Content(tokens, bytes), TokenType::i32,
          static_cast<std::int64_t>(tokens->size())};
}

}  // namespace

TextSource::TextSource(std::string name, std::shared_ptr<const std::string> text, std::int64_t context)
    : name_(std::move(name)),
      text_(std::move(text)),
      context_(context),
      size_(context < 1 ? 0 : (static_cast<std::int64_t>(text_->size()) - 1) / context) {
  if (size_ < 1) {
    throw UsageError(
        fmt::format("{}: expected a context of at least 1 and a text that is longer, got {} and {} "
                    "bytes",
                    name_, context, text_->size()));
  }
  fields_ = {{.name = "tokens", .dtype = DType::i32, .shape = {context + 1}, .values = kBytes}};
}

void TextSource::read(std::int64_t index, std::span<const View> outputs,
                      KeyedGenerator& /*generator*/) const {
  const auto first = static_cast<std::size_t>(index * context_);
  for (std::int64_t i = 0; i <= context_; ++i) {
    outputs[0].as<std::int32_t>()[i] =
        static_cast<unsigned char>((*text_)[first + static_cast<std::size_t>(i)]);
  }
}

Splits open_text(std::string_view text, const std::filesystem::path& folder) {
  SourceSpec spec("text", text);
  if (spec.file().empty()) spec.refuse("a file first, as in text:book.txt,context=64", "none");
  const std::int64_t context = spec.take_integer("context", 1, kMostContext, 64);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (const auto file = spec.take("tokenizer")) tokenizer = open_tokenizer((folder / *file).string());
  const auto test = spec.take("test");
  HoldOut hold_out = take_hold_out(spec);
  spec.finish(fmt::format("context=N, tokenizer=FILE, test=FILE, {}", kHoldOutSettings));
  if (!test && hold_out.folds == 0 && hold_out.share == 0) hold_out.share = kDefaultTrainShare;
  check_hold_out(spec, hold_out, test.has_value());
  const auto open = [&](const std::string& kind, const std::string& file) -> std::shared_ptr<const Source> {
    const std::string path = (folder / file).string(), name = fmt::format("{} ({})", kind, path);
    if (!tokenizer) return std::make_shared<const TextSource>(name, read_text(path), context);
    return std::make_shared<const TokenSource>(
        name, std::vector{tokenized(path, tokenizer)},
        WindowOptions{.context = context, .stride = context, .vocabulary = tokenizer->vocabulary()});
  };
  if (!test) return split_source(open("text", spec.file()), hold_out);
  return {open("text train", spec.file()), open("text test", *test)};
}

}  // namespace dtrain
