// `dtrain eval --choices`: questions with several answers, of which a language model finds one the likeliest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "worker/language_model.h"

namespace dtrain {

struct Question {
  std::string text;
  std::vector<std::string> choices;  ///< at least two
  std::size_t right = 0;             ///< which of them
};

/// A *.jsonl file, a question in each line: an object with query, choices and gold, as lm-evaluation-harness
/// has them, or ctx, endings and label, as HellaSwag. Throws DataError (path, line, expected, found).
std::vector<Question> read_questions(const std::string& path);

/// Over all questions, how often the right answer is the one whose …
struct ChoicesResult {
  double log = 0;        ///< log-likelihood is the largest (lm-evaluation-harness: acc)
  double by_letter = 0;  ///< … divided by its letters (acc_norm)
  double by_token = 0;   ///< … divided by its tokens (llm.c's HellaSwag)
  std::int64_t questions = 0;
};

/// Collective: each rank answers its part. An answer follows its question behind a space. Throws UsageError
/// for an answer that fills the context.
ChoicesResult answer(const LanguageModel& model, const Words& words, const std::vector<Question>& questions,
                     std::int64_t batch_size, Communicator& communicator, const Deadline& deadline);

}  // namespace dtrain
