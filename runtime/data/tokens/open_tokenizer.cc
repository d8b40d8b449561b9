#include <filesystem>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPurpose = "a tokenizer: tokenizer.json, vocab.json with merges.txt, or *.tiktoken";

std::string read_utf8(const std::string& path) {
  ContentReader reader(path, kPurpose);
  std::string content;
  std::vector<std::uint8_t> buffer(1U << 18);
  while (const std::size_t count = reader.read(buffer))
    content.append(reinterpret_cast<const char*>(buffer.data()), count);
  if (const std::size_t valid = valid_utf8(content); valid < content.size())
    throw DataError(path, static_cast<std::int64_t>(valid), "UTF-8", "other bytes");
  return content;
}

TokenizerSpec read_parts(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const std::string content = read_utf8(path.string());
    const bool json = content.find_first_not_of(" \t\r\n") == content.find('{');
    return json ? read_tokenizer_json(content, path.string()) : read_tiktoken(content, path.string());
  }
  const fs::path whole = path / "tokenizer.json", vocab = path / "vocab.json", merges = path / "merges.txt";
  if (fs::exists(whole, ignored)) return read_tokenizer_json(read_utf8(whole.string()), whole.string());
  if (!fs::exists(vocab, ignored)) throw DataError(path.string(), -1, kPurpose, "a folder with neither");
  return read_vocab_and_merges(read_utf8(vocab.string()), vocab.string(), read_utf8(merges.string()),
                               merges.string());
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path) {
  return std::make_shared<const Tokenizer>(read_parts(path));
}

}  // namespace dtrain
