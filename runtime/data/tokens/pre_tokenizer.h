// How text is cut into words before byte pairs are merged within each of them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// A word of a text, as cut off its front.
struct WordEnd {
  std::size_t end = 0;  ///< behind the position it was asked for
  bool kept = true;     ///< false: no word but what lies between words, which gets no tokens
};

/// Cuts text into words from front to back. Immutable: may be used by any number of threads at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Where the word that begins at `at`, which is below text.size(), ends. `text` is valid UTF-8, `at` 0 or
  /// where the word before ended.
  virtual WordEnd next(std::string_view text, std::size_t at) const = 0;
  /// Whether a text that is cut between a letter of ASCII and the line feed behind it has the same words.
  virtual bool cuts_at_lines() const noexcept { return false; }
};

/// What is done with what a pattern matches and with what lies between, by tokenizer.json's names.
enum class SplitBehavior {
  isolated,  ///< both are words
  removed,   ///< what does not match is words, what matches is dropped
  matches,   ///< "removed" with "invert": what matches is words, the rest is dropped; tiktoken's only way
};

/// Which program's regular expressions a pattern is written for: `$` is the end of the text to tiktoken, of a
/// line to tokenizers.
enum class PatternDialect { tiktoken, tokenizers };

/// For `pattern`: a scanner written by hand where it is one of those that known tokenizers have (GPT-2,
/// cl100k, o200k, LLaMA 3, Qwen 2, DeepSeek), else regex_pre_tokenizer(). Throws as that.
std::shared_ptr<const PreTokenizer> make_pre_tokenizer(const std::string& pattern, SplitBehavior behavior,
                                                       PatternDialect dialect);

/// For any `pattern` that PCRE2 understands, with this library's tables of characters instead of PCRE2's for
/// \s, \p{L}, \p{N}, \p{M}, \p{P}, \p{S} and the kinds of letters: slower, the same words. Throws UsageError
/// with PCRE2's words and the place in the pattern, or where dtrain was built without PCRE2. next() throws
/// Error where the pattern takes more steps than PCRE2 allows.
std::shared_ptr<const PreTokenizer> regex_pre_tokenizer(const std::string& pattern, SplitBehavior behavior,
                                                        PatternDialect dialect);

/// Patterns for which make_pre_tokenizer() has a scanner, for tests.
std::vector<std::string> known_patterns();

}  // namespace dtrain
