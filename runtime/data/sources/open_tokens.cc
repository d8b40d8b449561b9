// "tokens:…" of --dataset, and the tokens of "text:…,tokenizer=…".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/error.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/source_spec.h"
#include "runtime/data/tokens/shards/token_source.h"
#include "runtime/data/tokens/tokenizer.h"

namespace dtrain {
namespace {

std::vector<std::string> matching(const SourceSpec& spec, const std::filesystem::path& folder,
                                  const std::string& pattern) {
  const std::string whole = (folder / pattern).string();
  std::vector<std::string> paths = token_files_matching(whole);
  if (paths.empty()) spec.refuse("a pattern that matches files", whole);
  return paths;
}

/// What is known of the tokens' numbers beside the files.
struct Expected {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::int64_t vocabulary = 0;  ///< 0: not said
};

/// The vocabulary that all of `files` have; throws DataError where one is another tokenizer's.
std::int64_t vocabulary_of(const SourceSpec& spec, const std::vector<TokenFile>& files,
                           const Expected& expected) {
  const TokenFile& first = files.front();
  const std::uint64_t hash = expected.tokenizer ? expected.tokenizer->hash() : first.hash;
  const std::int64_t vocabulary = expected.tokenizer        ? expected.tokenizer->vocabulary()
                                  : expected.vocabulary > 0 ? expected.vocabulary
                                                            : first.vocabulary;
  const std::string whose = expected.tokenizer        ? expected.tokenizer->name()
                            : expected.vocabulary > 0 ? "vocabulary="
                                                      : first.path;
  if (vocabulary < 1)
    spec.refuse(fmt::format("vocabulary=N or tokenizer=FILE, since {} files do not record the vocabulary",
                            first.format),
                "neither");
  for (const TokenFile& file : files) {
    if (file.hash != 0 && hash != 0 && file.hash != hash)
      throw DataError(file.path, -1, fmt::format("tokens of tokenizer {:016x}, that of {}", hash, whose),
                      fmt::format("those of {:016x}", file.hash));
    if (file.vocabulary > vocabulary)
      throw DataError(file.path, -1, fmt::format("tokens below {}, the vocabulary of {}", vocabulary, whose),
                      fmt::format("a vocabulary of {}", file.vocabulary));
  }
  return vocabulary;
}

DocumentWindows taken_documents(SourceSpec& spec) {
  const std::string how = spec.take("documents").value_or("joined");
  if (how == "joined") return DocumentWindows::joined;
  if (how == "apart") return DocumentWindows::apart;
  if (how != "whole") spec.refuse("documents=joined, apart or whole", fmt::format("documents={}", how));
  return DocumentWindows::whole;
}

}  // namespace

Splits open_tokens(std::string_view text, const std::filesystem::path& folder) {
  SourceSpec spec("tokens", text);
  if (spec.file().empty())
    spec.refuse("a file or pattern first, as in tokens:shards/*.tokens,context=1024", "none");
  WindowOptions windows;
  windows.context = spec.take_integer("context", 1, kMostContext, 64);
  windows.stride = spec.take_integer("stride", 1, kMostContext, windows.context);
  windows.documents = taken_documents(spec);
  Expected expected;
  expected.vocabulary = spec.take_integer("vocabulary", 1, INT32_MAX, 0);
  if (const auto tokenizer = spec.take("tokenizer"))
    expected.tokenizer = open_tokenizer((folder / *tokenizer).string());
  const auto test = spec.take("test");
  HoldOut hold_out = take_hold_out(spec);
  spec.finish(
      fmt::format("context=N, stride=N, documents=HOW, vocabulary=N, tokenizer=FILE, test=PATTERN, {}",
                  kHoldOutSettings));
  if (!test && hold_out.folds == 0 && hold_out.share == 0) hold_out.share = kDefaultTrainShare;
  check_hold_out(spec, hold_out, test.has_value());
  if (!test && windows.stride < windows.context)
    spec.refuse("test=PATTERN, as windows that overlap cannot be split",
                fmt::format("stride={}", windows.stride));
  const auto open = [&](const std::string& name, const std::string& pattern) {
    std::vector<TokenFile> files;
    for (const std::string& path : matching(spec, folder, pattern)) files.push_back(open_token_file(path));
    WindowOptions here = windows;
    here.vocabulary = vocabulary_of(spec, files, expected);
    return std::make_shared<const TokenSource>(fmt::format("{} ({})", name, (folder / pattern).string()),
                                               std::move(files), here);
  };
  if (!test) return split_source(open("tokens", spec.file()), hold_out);
  const auto train = open("tokens train", spec.file()), tested = open("tokens test", *test);
  if (train->fields()[0].values != tested->fields()[0].values)
    spec.refuse(fmt::format("test tokens of the same vocabulary, {}", train->fields()[0].values),
                std::to_string(tested->fields()[0].values));
  return {train, tested};
}

}  // namespace dtrain
