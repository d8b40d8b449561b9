// The tokens that a BERT's samples are framed and masked with.
#pragma once

#include <cstdint>
#include <string>

#include "models/text/text_model.h"

namespace dtrain {

struct BertTokens {
  std::int32_t first = 0;       ///< [CLS], in front of each sample
  std::int32_t separator = 0;   ///< [SEP], behind each segment
  std::int32_t mask = 0;        ///< [MASK], in place of a word that is asked for
  std::int64_t vocabulary = 0;  ///< all tokens are below it

  bool operator==(const BertTokens&) const = default;
};

/// Those of `model`, for data whose tokens are below `words`. Of a model without a vocabulary of its own they
/// are numbered from `words` on, and the vocabulary is rounded up to a multiple of 8. Else tokenizer.json or
/// vocab.txt beside its config.json says which they are, or config.json itself; a vocabulary of 30,522 of
/// which nothing says it is that of the published models. Throws UsageError where nothing says it, or where
/// the data has tokens that the model does not know; DataError for a damaged file.
BertTokens bert_tokens(const TextModel& model, std::int64_t words);

/// `config`, the text of a config.json, with the numbers of `tokens` (cls_token_id, …), for a model whose
/// tokens were numbered here.
std::string config_with(const std::string& config, const BertTokens& tokens);

}  // namespace dtrain
