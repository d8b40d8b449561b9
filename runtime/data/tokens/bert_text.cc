#include "runtime/data/tokens/bert_text.h"

#include <algorithm>

#include "runtime/data/tokens/unicode.h"

namespace dtrain::bert {
namespace {

constexpr CharacterRun kIdeographs[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                        {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                        {0x2f800, 0x2fa1f}};

template <class Run>
const Run* find(std::span<const Run> runs, char32_t code) {
  const auto run = std::lower_bound(runs.begin(), runs.end(), code,
                                    [](const Run& each, char32_t wanted) { return each.last < wanted; });
  return run != runs.end() && run->first <= code ? &*run : nullptr;
}

bool is_space(char32_t code) { return character_classes()[code] == kSpace; }

/// Calls `use(character, its bytes)` for each.
template <class Use>
void for_characters(std::string_view text, Use use) {
  for (std::size_t at = 0; at < text.size();) {
    const Character found = decode_character(text.data() + at);
    use(found.code, text.substr(at, found.bytes));
    at += found.bytes;
  }
}

class Words final : public PreTokenizer {
 public:
  WordEnd next(std::string_view text, std::size_t at) const override {
    const Kind kind = kind_at(text, at);
    std::size_t end = at + decode_character(text.data() + at).bytes;
    if (kind == Kind::punctuation) return {end, true};
    while (end < text.size() && kind_at(text, end) == kind) end += decode_character(text.data() + end).bytes;
    return {end, kind == Kind::word};
  }
  bool cuts_at_lines() const noexcept override { return true; }

 private:
  enum class Kind { word, space, punctuation };

  static Kind kind_at(std::string_view text, std::size_t at) {
    const char32_t code = decode_character(text.data() + at).code;
    if (is_space(code)) return Kind::space;
    return find(punctuation(), code) != nullptr ? Kind::punctuation : Kind::word;
  }
};

}  // namespace

std::string clean(std::string_view text) {
  std::string result;
  for_characters(text, [&](char32_t code, std::string_view bytes) {
    if (find(removed_characters(), code) != nullptr) return;
    is_space(code) ? result += ' ' : result += bytes;
  });
  return result;
}

std::string space_ideographs(std::string_view text) {
  std::string result;
  for_characters(text, [&](char32_t code, std::string_view bytes) {
    const bool is_word = find(std::span<const CharacterRun>(kIdeographs), code) != nullptr;
    if (is_word) result += ' ';
    result += bytes;
    if (is_word) result += ' ';
  });
  return result;
}

std::string without_accents(std::string_view text) {
  std::string result;
  for_characters(text, [&](char32_t code, std::string_view bytes) {
    if (find(accents(), code) == nullptr) result += bytes;
  });
  return result;
}

std::string with_one_space(std::string_view text) {
  std::string result;
  bool was_space = false;
  for_characters(text, [&](char32_t code, std::string_view bytes) {
    if (!is_space(code)) result += bytes;
    if (is_space(code) && !was_space) result += ' ';
    was_space = is_space(code);
  });
  return result;
}

std::string lowercase(std::string_view text) {
  constexpr char32_t kDottedI = 0x130;  // to an i and a dot above it
  std::string result;
  for_characters(text, [&](char32_t code, std::string_view bytes) {
    if (code == kDottedI) {
      result += "i\u0307";
      return;
    }
    const LowerRun* const run = find(lower_letters(), code);
    if (run == nullptr || (code - run->first) % run->step != 0) {
      result += bytes;
      return;
    }
    append_character(result, static_cast<char32_t>(static_cast<std::int32_t>(code) + run->difference));
  });
  return result;
}

std::shared_ptr<const PreTokenizer> make_pre_tokenizer() { return std::make_shared<Words>(); }

}  // namespace dtrain::bert
