// Text files to shards of tokens: one pass, in bounded memory, by several threads; a conversion that was
// killed is resumed where its last whole shard ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/tokens/shards/document_reader.h"
#include "runtime/data/tokens/tokenizer.h"

namespace dtrain {

struct TokenizeProgress {
  std::int64_t bytes = 0;  ///< of text, encoded
  std::int64_t tokens = 0;
  std::int64_t shards = 0;  ///< whole ones
  bool resumed = false;     ///< the folder had some of them already
};

struct TokenizeRequest {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::string> inputs;          ///< *.txt, *.jsonl, in this order
  std::filesystem::path output;             ///< the folder of the shards, 00000.tokens and on
  DocumentFields fields = {};               ///< of a line of *.jsonl; prompts are not asked for
  std::int64_t shard_tokens = 100'000'000;  ///< a shard ends with the document that reaches it
  std::optional<std::int32_t> end_token;    ///< put behind each document
  int threads = 1;
  std::function<void(const TokenizeProgress&)> on_progress;  ///< now and then, in the calling thread
};

/// Writes the shards and progress.json, which says how far it came. The tokens are the same for any number of
/// threads and however often it was killed. Throws UsageError where the folder holds another conversion,
/// DataError for an input (DocumentReader::next()), SystemError.
TokenizeProgress tokenize_files(const TokenizeRequest& request);

}  // namespace dtrain
