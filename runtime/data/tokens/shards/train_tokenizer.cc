#include "runtime/data/tokens/shards/train_tokenizer.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/data/tokens/patterns.h"
#include "runtime/data/tokens/pre_tokenizer.h"
#include "runtime/data/tokens/shards/share_out.h"

namespace dtrain {
namespace {

void count_words(std::string_view text, const PreTokenizer& cutter, WordCounts& counts) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = cutter.next(text, at).end;
    const std::string_view word = text.substr(at, end - at);
    if (const auto found = counts.find(word); found != counts.end()) {
      ++found->second;
    } else {
      counts.emplace(word, 1);
    }
    at = end;
  }
}

}  // namespace

LearnedPairs train_tokenizer(const TrainTokenizerRequest& request) {
  if (request.inputs.empty() || request.threads < 1 || request.vocabulary < kLeastVocabulary)
    throw UsageError(fmt::format(
        "training a tokenizer: expected inputs, at least 1 thread and {} tokens (256 bytes and {}), "
        "got {}, {} and {}",
        kLeastVocabulary, kEndOfText, request.inputs.size(), request.threads, request.vocabulary));
  check_document_files(request.inputs, !request.fields.prompt.empty());
  const auto cutter =
      make_pre_tokenizer(patterns::kByteLevel, SplitBehavior::isolated, PatternDialect::tokenizers);
  DocumentReader reader(request.inputs, request.fields, cutter->cuts_at_lines(), {});
  std::vector<WordCounts> counts(static_cast<std::size_t>(request.threads));
  TrainTokenizerProgress progress;
  const auto report = [&] {
    if (request.on_progress) request.on_progress(progress);
  };
  share_out_texts<DocumentPiece>(
      reader, counts,
      [&](WordCounts& mine, const DocumentPiece& piece) {
        for (const DocumentText& part : piece.parts) {
          count_words(part.prompt, *cutter, mine);
          count_words(part.text, *cutter, mine);
        }
      },
      [&](const std::vector<DocumentPiece>& batch) {
        for (const DocumentPiece& piece : batch) progress.bytes += piece.text_bytes();
        progress.words = static_cast<std::int64_t>(counts[0].size());
        report();
      });
  for (std::size_t i = 1; i < counts.size(); ++i) {
    for (const auto& [word, count] : counts[i]) counts[0][word] += count;
    counts[i] = {};
  }
  progress.words = static_cast<std::int64_t>(counts[0].size());
  return learn_pairs(counts[0], request.vocabulary, [&](std::int64_t tokens) {
    progress.tokens = tokens;
    report();
  });
}

}  // namespace dtrain
