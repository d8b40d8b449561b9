// Scanners for the patterns of known tokenizers: what the regular expression matches, in one pass without
// backtracking. tests/unit/data/tokens compares each with its expression.
#include <string>

#include "runtime/data/tokens/patterns.h"
#include "runtime/data/tokens/pre_tokenizer.h"
#include "runtime/data/tokens/unicode.h"

namespace dtrain {

namespace {

/// What the scanners have in common: a text and questions about its characters.
class Text {
 public:
  Text(std::string_view text, const std::uint8_t* classes)
      : text_(text.data()), size_(text.size()), classes_(classes) {}

  std::size_t size() const noexcept { return size_; }
  bool is(std::size_t at, char wanted) const noexcept { return at < size_ && text_[at] == wanted; }
  unsigned char byte(std::size_t at) const noexcept { return static_cast<unsigned char>(text_[at]); }
  bool newline(std::size_t at) const noexcept { return is(at, '\n') || is(at, '\r'); }

  /// Class and bytes of the character at `at`; 0 bytes at the end.
  struct At {
    std::uint8_t kind = 0;
    std::uint32_t bytes = 0;
  };
  At look(std::size_t at) const noexcept {
    if (at >= size_) return {};
    if (byte(at) < 0x80) return {classes_[byte(at)], 1};
    const Character character = decode_character(text_ + at);
    return {classes_[character.code], character.bytes};
  }
  /// Behind the characters from `at` on that have one of `kinds`, at most `most` of them.
  std::size_t behind(std::size_t at, unsigned kinds, std::size_t most = SIZE_MAX) const noexcept {
    for (; most > 0; --most) {
      const At found = look(at);
      if ((found.kind & kinds) == 0) break;
      at += found.bytes;
    }
    return at;
  }
  /// Behind [^\s\p{L}\p{N}]*.
  std::size_t behind_others(std::size_t at) const noexcept {
    for (;;) {
      const At found = look(at);
      if (found.bytes == 0 || (found.kind & (kSpace | kLetter | kNumber)) != 0) return at;
      at += found.bytes;
    }
  }
  std::size_t behind_newlines(std::size_t at) const noexcept {
    while (newline(at)) ++at;
    return at;
  }

  /// Behind 's, 't, 're, 've, 'm, 'll or 'd at `at`; `at` where there is none. In any case of letters, the
  /// long s counts as one.
  std::size_t behind_contraction(std::size_t at, bool any_case) const noexcept {
    if (!is(at, '\'') || at + 1 >= size_) return at;
    const auto letter = [&](std::size_t i) {
      const char c = i < size_ ? text_[i] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = letter(at + 1), second = letter(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) return at + 3;
    if (any_case && text_[at + 1] == '\xc5' && text_[at + 2] == '\xbf') return at + 3;
    return at;
  }

  /// \s*[\r\n]+ (where `to_newline`), \s+(?!\S), \s+ for whitespace at `at`.
  std::size_t behind_spaces(std::size_t at, bool to_newline) const noexcept {
    std::size_t end = at, last = at, newline_end = at;
    for (At found = look(at); (found.kind & kSpace) != 0; found = look(end)) {
      last = end;
      end += found.bytes;
      if (newline(last)) newline_end = end;
    }
    if (to_newline && newline_end > at) return newline_end;
    return end == size_ || last == at ? end : last;
  }

 private:
  const char* text_;
  std::size_t size_;
  const std::uint8_t* classes_;
};

/// None of these patterns has a word with a letter and a line feed behind it.
class Scanner : public PreTokenizer {
 public:
  bool cuts_at_lines() const noexcept override { return true; }
};

/// GPT-2's: patterns::kByteLevel.
class Gpt2Scanner final : public Scanner {
 public:
  WordEnd next(std::string_view whole, std::size_t at) const override {
    const Text text(whole, classes_);
    if (const std::size_t end = text.behind_contraction(at, false); end > at) return {end};
    const std::size_t word = text.is(at, ' ') ? at + 1 : at;
    const Text::At first = text.look(word);
    if (first.bytes == 0 || (first.kind & kSpace) != 0) return {text.behind_spaces(at, false)};
    const std::size_t rest = word + first.bytes;
    if ((first.kind & kLetter) != 0) return {text.behind(rest, kLetter)};
    if ((first.kind & kNumber) != 0) return {text.behind(rest, kNumber)};
    return {text.behind_others(rest)};
  }

 private:
  const std::uint8_t* classes_ = character_classes();
};

/// cl100k's, LLaMA 3's and Qwen 2's, which differ in how many digits a word has, and in whether whitespace at
/// the end of the text is one word whatever lines it has.
class Cl100kScanner final : public Scanner {
 public:
  Cl100kScanner(std::size_t digits, bool whole_end) : digits_(digits), whole_end_(whole_end) {}

  WordEnd next(std::string_view whole, std::size_t at) const override {
    const Text text(whole, classes_);
    if (const std::size_t end = text.behind_contraction(at, true); end > at) return {end};
    const Text::At first = text.look(at);
    const std::size_t rest = at + first.bytes;
    if ((first.kind & kLetter) != 0) return {text.behind(rest, kLetter)};
    if ((first.kind & kNumber) != 0) return {text.behind(rest, kNumber, digits_ - 1)};
    if (!text.newline(at))
      if (const std::size_t end = text.behind(rest, kLetter); end > rest) return {end};
    const std::size_t others = text.is(at, ' ') ? rest : at;
    if (const std::size_t end = text.behind_others(others); end > others) return {text.behind_newlines(end)};
    if (whole_end_ && text.behind(at, kSpace) == text.size()) return {text.size()};
    return {text.behind_spaces(at, true)};
  }

 private:
  const std::uint8_t* classes_ = character_classes();
  std::size_t digits_;
  bool whole_end_;
};

/// o200k's: words by the case of their letters, contractions attached.
class O200kScanner final : public Scanner {
 public:
  WordEnd next(std::string_view whole, std::size_t at) const override {
    const Text text(whole, classes_);
    const Text::At first = text.look(at);
    const std::size_t rest = at + first.bytes;
    if (const std::size_t end = behind_word(text, at, rest, first); end > at)
      return {text.behind_contraction(end, true)};
    if ((first.kind & kNumber) != 0) return {text.behind(rest, kNumber, 2)};
    const std::size_t others = text.is(at, ' ') ? rest : at;
    std::size_t end = text.behind_others(others);
    if (end == others) return {text.behind_spaces(at, true)};
    while (text.newline(end) || text.is(end, '/')) ++end;
    return {end};
  }

 private:
  static constexpr unsigned kUpperish = kUpper | kOtherLetter | kMark;
  static constexpr unsigned kLowerish = kLower | kOtherLetter | kMark;

  /// Letters with at most one other character in front; `at` where there are none.
  static std::size_t behind_word(const Text& text, std::size_t at, std::size_t rest, Text::At first) {
    const bool prefix = (first.kind & (kLetter | kNumber)) == 0 && !text.newline(at);
    if (prefix)
      if (const std::size_t end = behind_mixed(text, rest); end > rest) return end;
    if (const std::size_t end = behind_mixed(text, at); end > at) return end;
    if (prefix)
      if (const std::size_t end = text.behind(rest, kUpperish); end > rest) return end;
    return text.behind(at, kUpperish);
  }

  /// Behind [kUpperish]*[kLowerish]+; `at` where that does not match: then nothing kLowerish is among or
  /// behind the kUpperish ones, so that those alone are what the pattern's next alternative matches.
  static std::size_t behind_mixed(const Text& text, std::size_t at) {
    std::size_t end = at, lowerish_end = at;
    for (Text::At found = text.look(at); (found.kind & kUpperish) != 0; found = text.look(end)) {
      end += found.bytes;
      if ((found.kind & kLowerish) != 0) lowerish_end = end;
    }
    const std::size_t lower_end = text.behind(end, kLowerish);
    return lower_end > end ? lower_end : lowerish_end;
  }

  const std::uint8_t* classes_ = character_classes();
};

/// What DeepSeek cuts third: ASCII punctuation with letters behind it, letters with marks, punctuation. What
/// nothing of it matches is a word up to where something does.
class DeepseekScanner final : public Scanner {
 public:
  WordEnd next(std::string_view whole, std::size_t at) const override {
    const Text text(whole, classes_);
    if (const std::size_t end = match(text, at); end > at) return {end};
    std::size_t end = at;
    do end += text.look(end).bytes;
    while (end < text.size() && match(text, end) == end);
    return {end};
  }

 private:
  static bool ascii_letter(const Text& text, std::size_t at) {
    return at < text.size() && (text.byte(at) | 0x20U) >= 'a' && (text.byte(at) | 0x20U) <= 'z';
  }

  static std::size_t match(const Text& text, std::size_t at) {
    constexpr unsigned kLetters = kLetter | kMark, kSigns = kPunctuation | kSymbol;
    const Text::At first = text.look(at);
    const std::size_t rest = at + first.bytes;
    if (first.bytes == 1 && (first.kind & kSigns) != 0 && ascii_letter(text, rest)) {
      std::size_t end = rest;
      while (ascii_letter(text, end)) ++end;
      return end;
    }
    if ((first.kind & (kLetter | kSigns)) == 0 && !text.newline(at))
      if (const std::size_t end = text.behind(rest, kLetters); end > rest) return end;
    if (const std::size_t end = text.behind(at, kLetters); end > at) return end;
    const std::size_t signs = text.is(at, ' ') ? rest : at;
    if (const std::size_t end = text.behind(signs, kSigns); end > signs) return text.behind_newlines(end);
    return (first.kind & kSpace) != 0 ? text.behind_spaces(at, true) : at;
  }

  const std::uint8_t* classes_ = character_classes();
};

/// What DeepSeek cuts first and second: runs of some characters, and all between them.
template <class Run>
class RunScanner final : public Scanner {
 public:
  WordEnd next(std::string_view whole, std::size_t at) const override {
    if (const std::size_t end = Run::behind(whole, at, classes_); end > at) return {end};
    std::size_t end = at;
    do end += decode_character(whole.data() + end).bytes;
    while (end < whole.size() && Run::behind(whole, end, classes_) == end);
    return {end};
  }

 private:
  const std::uint8_t* classes_ = character_classes();
};

struct ThreeNumbers {
  static std::size_t behind(std::string_view whole, std::size_t at, const std::uint8_t* classes) {
    return Text(whole, classes).behind(at, kNumber, 3);
  }
};

struct ChineseAndKana {
  static std::size_t behind(std::string_view whole, std::size_t at, const std::uint8_t* /*classes*/) {
    while (at < whole.size()) {
      const Character found = decode_character(whole.data() + at);
      const bool inside =
          (found.code >= 0x4e00 && found.code <= 0x9fa5) || (found.code >= 0x3040 && found.code <= 0x30ff);
      if (!inside) break;
      at += found.bytes;
    }
    return at;
  }
};

using MakeScanner = std::shared_ptr<const PreTokenizer> (*)();

template <std::size_t kDigits, bool kWholeEnd>
std::shared_ptr<const PreTokenizer> make_cl100k() {
  return std::make_shared<Cl100kScanner>(kDigits, kWholeEnd);
}

template <class Scanner>
std::shared_ptr<const PreTokenizer> make() {
  return std::make_shared<Scanner>();
}

struct Known {
  const char* pattern;
  bool gaps;  ///< whether there is text that it does not match
  MakeScanner make;
};

const Known kKnown[] = {
    {patterns::kByteLevel, false, make<Gpt2Scanner>},
    {patterns::kR50k, false, make<Gpt2Scanner>},
    {patterns::kCl100k, false, make_cl100k<3, true>},
    {patterns::kLlama3, false, make_cl100k<3, false>},
    {patterns::kQwen2, false, make_cl100k<1, false>},
    {patterns::kO200k, false, make<O200kScanner>},
    {patterns::kDeepseek1, true, make<RunScanner<ThreeNumbers>>},
    {patterns::kDeepseek2, true, make<RunScanner<ChineseAndKana>>},
    {patterns::kDeepseek3, true, make<DeepseekScanner>},
};

}  // namespace

std::shared_ptr<const PreTokenizer> make_pre_tokenizer(const std::string& pattern, SplitBehavior behavior,
                                                       PatternDialect dialect) {
  for (const Known& known : kKnown) {
    const bool fits =
        behavior == SplitBehavior::isolated || (behavior == SplitBehavior::matches && !known.gaps);
    if (pattern == known.pattern && fits) return known.make();
  }
  return regex_pre_tokenizer(pattern, behavior, dialect);
}

std::vector<std::string> known_patterns() {
  std::vector<std::string> patterns;
  for (const Known& known : kKnown) patterns.emplace_back(known.pattern);
  return patterns;
}

}  // namespace dtrain
