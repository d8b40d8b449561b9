// A tokenizer of one's own, from text files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/tokens/shards/document_reader.h"
#include "runtime/data/tokens/train_bpe.h"

namespace dtrain {

struct TrainTokenizerProgress {
  std::int64_t bytes = 0;   ///< of text, cut into words
  std::int64_t words = 0;   ///< different ones
  std::int64_t tokens = 0;  ///< of the vocabulary
};

struct TrainTokenizerRequest {
  std::vector<std::string> inputs;  ///< *.txt, *.jsonl
  DocumentFields fields = {};       ///< of a line of *.jsonl
  std::int64_t vocabulary = 0;      ///< tokens, with the 256 bytes and <|endoftext|>
  int threads = 1;                  ///< that cut texts into words
  std::function<void(const TrainTokenizerProgress&)> on_progress =
      {};  ///< now and then, in the calling thread
};

/// Byte pairs of the words that GPT-2's pattern cuts the texts into; the same for any number of threads and
/// order of the inputs (learn_pairs()). Memory grows with the number of different words. Throws UsageError
/// for fewer than kLeastVocabulary tokens, DataError for an input (DocumentReader::next()).
LearnedPairs train_tokenizer(const TrainTokenizerRequest& request);

}  // namespace dtrain
