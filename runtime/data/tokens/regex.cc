// Any pattern, by PCRE2. Where PCRE2 was built with another version of Unicode, classes of characters are
// completed from this library's table, so that a pattern means the same with each.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/unique.h"
#include "runtime/data/tokens/pre_tokenizer.h"
#include "runtime/data/tokens/unicode.h"

namespace dtrain {
namespace {

constexpr std::uint32_t kSurrogates = 0xd800, kBehindSurrogates = 0xe000;
constexpr std::size_t kJitStackBytes = 1 << 20;

struct CodeTraits {
  using Handle = pcre2_code*;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle code) noexcept { pcre2_code_free(code); }
};
using Code = Unique<CodeTraits>;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

Code compile(const std::string& pattern, std::uint32_t options, const std::string& as_given) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          options | PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (!code) {
    throw UsageError(fmt::format("pattern \"{}\": expected a regular expression, got an error: {}", as_given,
                                 message_of(error)));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where there is no such compiler, it is interpreted
  return code;
}

/// What a thread needs to match.
class Matcher {
 public:
  Matcher()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(1 << 15, kJitStackBytes, nullptr)) {
    pcre2_jit_stack_assign(context_, nullptr, stack_);
  }
  ~Matcher() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  struct Match {
    std::size_t begin, end;
  };
  /// The first match of at least one character from `at` on; {size, size} where there is none.
  Match search(const pcre2_code* code, std::string_view text, std::size_t at) {
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data_, context_);
    if (found == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
    if (found < 0) {
      throw Error(fmt::format("splitting text: expected the pattern to match or not, got: {} at byte {}",
                              message_of(found), at));
    }
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(data_);
    return {bounds[0], bounds[1]};
  }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

Matcher& matcher() {
  static thread_local Matcher instance;
  return instance;
}

using Kinds = std::uint32_t;  // a bit for each CharacterKind

constexpr Kinds bit(CharacterKind kind) { return 1U << static_cast<unsigned>(kind); }

struct Property {
  std::string_view name;  ///< behind the backslash
  Kinds kinds;
};
constexpr std::array kProperties = {
    Property{"p{L}", bit(CharacterKind::lu) | bit(CharacterKind::ll) | bit(CharacterKind::lt) |
                         bit(CharacterKind::lm) | bit(CharacterKind::lo)},
    Property{"p{Lu}", bit(CharacterKind::lu)},
    Property{"p{Ll}", bit(CharacterKind::ll)},
    Property{"p{Lt}", bit(CharacterKind::lt)},
    Property{"p{Lm}", bit(CharacterKind::lm)},
    Property{"p{Lo}", bit(CharacterKind::lo)},
    Property{"p{M}", bit(CharacterKind::m)},
    Property{"p{N}", bit(CharacterKind::n)},
    Property{"p{P}", bit(CharacterKind::p)},
    Property{"p{S}", bit(CharacterKind::s)},
    Property{"s", bit(CharacterKind::space)},
};

using Characters = std::vector<bool>;  // by code point

Characters in_table(Kinds kinds) {
  Characters characters(kCharacters);
  const auto runs = character_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if ((kinds >> (runs[i] & 15U) & 1U) == 0) continue;
    const std::uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> 4U : kCharacters;
    std::fill(characters.begin() + (runs[i] >> 4U), characters.begin() + end, true);
  }
  return characters;
}

Characters in_pcre2(std::string_view name) {
  std::string all;
  for (std::uint32_t code = 0; code < kCharacters; ++code)
    if (code < kSurrogates || code >= kBehindSurrogates) append_character(all, code);
  const std::string pattern = fmt::format("\\{}+", name);
  const Code code = compile(pattern, 0, pattern);
  Characters characters(kCharacters);
  for (std::size_t at = 0; at < all.size();) {
    const auto [begin, end] = matcher().search(code.get(), all, at);
    for (at = begin; at < end;) {
      const Character found = decode_character(all.data() + at);
      characters[found.code] = true;
      at += found.bytes;
    }
  }
  return characters;
}

/// Those of `wanted` but `known` as they stand between the brackets of a class.
std::string ranges_of(const Characters& wanted, const Characters& known) {
  std::string ranges;
  for (std::uint32_t code = 0; code < kCharacters;) {
    std::uint32_t end = code;
    while (end < kCharacters && wanted[end] && !known[end]) ++end;
    if (end > code) ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", code, end - 1);
    code = end + (end == code ? 1 : 0);
  }
  return ranges;
}

/// The characters of a property, or all others, between the brackets of a class: PCRE2's and what it lacks,
/// or each where it has some that are none.
std::string class_of(const Property& property, bool others) {
  if (others) {
    Characters wanted = in_table(property.kinds);
    wanted.flip();
    std::fill(wanted.begin() + kSurrogates, wanted.begin() + kBehindSurrogates, false);  // PCRE2 refuses them
    return ranges_of(wanted, Characters(kCharacters));
  }
  const Characters wanted = in_table(property.kinds), known = in_pcre2(property.name);
  for (std::uint32_t code = 0; code < kCharacters; ++code)
    if (known[code] && !wanted[code]) return ranges_of(wanted, Characters(kCharacters));
  return fmt::format("\\{}{}", property.name, ranges_of(wanted, known));
}

/// `pattern` with the properties of kProperties, and \P and \S of them, completed.
std::string completed(const std::string& pattern) {
  std::map<std::pair<std::string_view, bool>, std::string> classes;
  std::string result;
  bool inside = false;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::string_view rest = std::string_view(pattern).substr(at);
    if (rest[0] != '\\' || rest.size() < 2) {
      inside = rest[0] == '[' || (inside && rest[0] != ']');
      result += pattern[at++];
      continue;
    }
    const bool negated = rest[1] == 'P' || rest[1] == 'S';
    std::string name(rest.substr(1, 6));
    if (negated) name[0] = static_cast<char>(name[0] + 'a' - 'A');
    const auto* const property =
        std::find_if(kProperties.begin(), kProperties.end(),
                     [&](const Property& each) { return name.starts_with(each.name); });
    if (property == kProperties.end()) {
      result += rest.substr(0, 2);
      at += 2;
      continue;
    }
    auto [found, added] = classes.try_emplace({property->name, negated && inside});
    if (added) found->second = class_of(*property, negated && inside);
    result += inside ? found->second : fmt::format("[{}{}]", negated ? "^" : "", found->second);
    at += 1 + property->name.size();
  }
  return result;
}

class RegexPreTokenizer final : public PreTokenizer {
 public:
  RegexPreTokenizer(const std::string& pattern, SplitBehavior behavior, PatternDialect dialect)
      : behavior_(behavior),
        code_(compile(completed(pattern),
                      dialect == PatternDialect::tokenizers ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY,
                      pattern)) {}

  WordEnd next(std::string_view text, std::size_t at) const override {
    const auto [begin, end] = matcher().search(code_.get(), text, at);
    if (begin > at) return {begin, behavior_ != SplitBehavior::matches};
    return {end, behavior_ != SplitBehavior::removed};
  }

 private:
  SplitBehavior behavior_;
  Code code_;
};

}  // namespace

std::shared_ptr<const PreTokenizer> regex_pre_tokenizer(const std::string& pattern, SplitBehavior behavior,
                                                        PatternDialect dialect) {
  return std::make_shared<RegexPreTokenizer>(pattern, behavior, dialect);
}

}  // namespace dtrain
