// The formats that tokenizers are published in.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/tokens/tokenizer.h"
#include "runtime/data/tokens/train_bpe.h"

namespace dtrain {

/// `content` of the file `path`, tokenizer.json. Throws DataError.
TokenizerSpec read_tokenizer_json(std::string_view content, const std::string& path);

/// tokenizer.json for pairs learned from words that GPT-2's pattern cuts, as Hugging Face's tokenizers has
/// it.
std::string write_tokenizer_json(const LearnedPairs& learned);

/// GPT-2's two files. Throws DataError.
TokenizerSpec read_vocab_and_merges(std::string_view vocab, const std::string& vocab_path,
                                    std::string_view merges, const std::string& merges_path);

/// A line a token: base64 of its bytes, a space, its rank, which is its number. The pattern and the special
/// tokens are those of the published encoding with as many ranks. Throws DataError.
TokenizerSpec read_tiktoken(std::string_view content, const std::string& path);

/// "Ġa" → " a": the bytes that a string of GPT-2's visible characters for bytes stands for; the string itself
/// where it has another character.
std::string bytes_of_visible(std::string_view text);
/// The other direction.
std::string visible_bytes(std::string_view bytes);

}  // namespace dtrain
