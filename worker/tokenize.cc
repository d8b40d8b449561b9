// `dtrain tokenize`: text files to shards of tokens, for --dataset tokens:…, or to a tokenizer of one's own.
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "runtime/base/files/durable_file.h"
#include "runtime/base/terminal.h"
#include "runtime/data/tokens/shards/token_file.h"
#include "runtime/data/tokens/shards/tokenize_files.h"
#include "runtime/data/tokens/shards/train_tokenizer.h"
#include "runtime/data/tokens/tokenizer_files.h"
#include "runtime/metrics/progress.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"tokenizer", "Tokenize", "FILE", "", "tokenizer.json, a *.tiktoken file of a published encoding, or a folder with tokenizer.json or vocab.json and merges.txt"},
    {"input", "Tokenize", "PATTERN", "", "texts: *.txt (each file is a document) or *.jsonl (each line is a document); both may be compressed by gzip"},
    {"output", "Tokenize", "DIR", "", "folder for the shards; if it holds shards of an interrupted run of the same conversion, it resumes after them"},
    {"field", "Tokenize", "NAME", "text", "field of each *.jsonl line that has the document's text"},
    {"prompt", "Tokenize", "NAME", "", "field of each *.jsonl line that has a prompt, a text before the document's that is not counted in the training loss (use it with --field completion, for example)"},
    {"end-token", "Tokenize", "TOKEN", "auto", "token to append to each document: auto (the tokenizer's end of text, such as <|endoftext|>), none, or the text of a token"},
    {"shard-tokens", "Tokenize", "N", "100000000", "a shard ends with the document that reaches N tokens"},
    {"threads", "Tokenize", "N", "0", "encoding threads; 0: one per CPU"},
    {"train", "Train a tokenizer", "N", "", "train a tokenizer of at most N tokens on the texts (byte-level BPE, words split as by GPT-2) and write its tokenizer.json to --output, instead of shards"},
    {"verify", "Check", "PATTERN", "", "write nothing; check token files (of any supported format) against their checksums and vocabulary"},
    {"help", "Check", "", "", "print this text"},
};
// clang-format on

std::vector<std::string> matching(const Options& options, const std::string& name) {
  const std::string& pattern = options.text(name);
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (paths.empty()) options.refuse(name, "a pattern that matches files");
  return paths;
}

std::optional<std::int32_t> end_token(const Options& options, const Tokenizer& tokenizer) {
  const std::string& wanted = options.text("end-token");
  if (wanted == "none") return std::nullopt;
  const auto token = wanted == "auto" ? tokenizer.end_of_text() : tokenizer.added_token(wanted);
  if (!token) options.refuse("end-token", fmt::format("a token that {} has, or none", tokenizer.name()));
  return token;
}

ExitCode check_files(const Options& options) {
  const std::vector<std::string> paths = token_files_matching(options.text("verify"));
  if (paths.empty()) options.refuse("verify", "a pattern that matches files");
  for (const std::string& path : paths) {
    const TokenFile file = open_token_file(path);
    verify(file);
    fmt::print("{}: {}, {} tokens, {} documents, vocabulary {}, tokenizer {:016x}\n", path, file.format,
               file.count, file.documents.size(), file.vocabulary, file.hash);
  }
  return ExitCode::ok;
}

void expect_given(const Options& options, std::initializer_list<const char*> names) {
  for (const char* const name : names)
    if (!options.has(name))
      throw UsageError(fmt::format("expected --{}, got none (`dtrain tokenize --help`)", name));
}

DocumentFields fields(const Options& options) {
  return {options.text("field"), options.has("prompt") ? options.text("prompt") : ""};
}

int threads(const Options& options) {
  const auto wanted = static_cast<int>(options.integer("threads", 0, 1024));
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Shows on a terminal how far a pass over texts is: of their bytes, where these are the files', neither gzip
/// nor JSON around them.
class TextProgress {
 public:
  TextProgress(const std::vector<std::string>& inputs, const Environment& environment)
      : line_(STDERR_FILENO, progress_options_for(STDERR_FILENO, environment)),
        shown_(shows_on_terminal(STDERR_FILENO, environment)) {
    for (const std::string& input : inputs) {
      total_ += static_cast<std::int64_t>(std::filesystem::file_size(input));
      known_ = known_ && input.ends_with(".txt");
    }
  }
  /// `bytes` of text are done, which makes `what`.
  void show(std::int64_t bytes, const std::string& what) {
    if (!shown_) return;
    Progress progress;
    progress.step = bytes;
    progress.total_steps = known_ ? total_ : 0;
    progress.done = fmt::format("{:.1f} MB, {}", static_cast<double>(bytes) / 1e6, what);
    line_.update(progress);
  }
  void finish() { line_.finish(); }

 private:
  ProgressLine line_;
  bool shown_, known_ = true;
  std::int64_t total_ = 0;
};

ExitCode make_tokenizer(const Options& options, const Environment& environment) {
  expect_given(options, {"input", "output"});
  if (options.has("tokenizer"))
    options.refuse("tokenizer", "no tokenizer with --train, which makes one (then run without --train)");
  const std::filesystem::path folder = options.text("output"), path = folder / "tokenizer.json";
  if (std::filesystem::exists(path)) options.refuse("output", "a folder without a tokenizer.json");
  TrainTokenizerRequest request;
  request.inputs = matching(options, "input");
  request.fields = fields(options);
  request.vocabulary = options.integer("train", kLeastVocabulary, kMostVocabulary);
  request.threads = threads(options);
  TextProgress line(request.inputs, environment);
  request.on_progress = [&](const TrainTokenizerProgress& now) {
    line.show(now.bytes, fmt::format("{} different words, {} tokens", now.words, now.tokens));
  };
  const LearnedPairs learned = train_tokenizer(request);
  line.finish();
  make_directories(folder);
  replace_file(path, write_tokenizer_json(learned));
  fmt::print("{}: {} tokens, {} merges\n", path.string(), learned.tokens.size(), learned.merges.size());
  return ExitCode::ok;
}

ExitCode convert(const Options& options, const Environment& environment) {
  expect_given(options, {"tokenizer", "input", "output"});
  TokenizeRequest request;
  request.inputs = matching(options, "input");
  request.tokenizer = open_tokenizer(options.text("tokenizer"));
  request.output = options.text("output");
  request.fields = fields(options);
  request.shard_tokens = options.integer("shard-tokens", 1, INT64_MAX);
  request.end_token = end_token(options, *request.tokenizer);
  request.threads = threads(options);
  TextProgress line(request.inputs, environment);
  request.on_progress = [&](const TokenizeProgress& now) {
    line.show(now.bytes, fmt::format("{} tokens, {} shards", now.tokens, now.shards));
  };
  const TokenizeProgress done = tokenize_files(request);
  line.finish();
  fmt::print("{}: {} tokens of {} bytes in {} shard{}{}\n", request.output.string(), done.tokens, done.bytes,
             done.shards, done.shards == 1 ? "" : "s", done.resumed ? ", resumed" : "");
  return ExitCode::ok;
}

}  // namespace

ExitCode run_tokenize(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain tokenize", kOptions, invocation.arguments, invocation.environment);
  if (const auto help =
          asked_help(options,
                     "usage: dtrain tokenize --tokenizer FILE --input PATTERN --output DIR [options]\n"
                     "       dtrain tokenize --train N --input PATTERN --output DIR [options]\n"
                     "       dtrain tokenize --verify PATTERN\n\nExamples:\n"
                     "  dtrain tokenize --tokenizer gpt2/tokenizer.json --input 'texts/*.txt' \\\n"
                     "    --output tokens/web\n"
                     "  dtrain tokenize --train 8192 --input 'books/*.txt' --output mine",
                     kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  if (options.has("verify")) return check_files(options);
  return options.has("train") ? make_tokenizer(options, invocation.environment)
                              : convert(options, invocation.environment);
}

}  // namespace dtrain
