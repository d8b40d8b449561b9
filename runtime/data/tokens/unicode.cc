#include "runtime/data/tokens/unicode.h"

#include <algorithm>
#include <memory>

namespace dtrain {
namespace {

std::uint8_t class_of(CharacterKind kind) {
  switch (kind) {
    case CharacterKind::lu:
    case CharacterKind::lt:
      return kUpper;
    case CharacterKind::ll:
      return kLower;
    case CharacterKind::lm:
    case CharacterKind::lo:
      return kOtherLetter;
    case CharacterKind::m:
      return kMark;
    case CharacterKind::n:
      return kNumber;
    case CharacterKind::p:
      return kPunctuation;
    case CharacterKind::s:
      return kSymbol;
    case CharacterKind::space:
      return kSpace;
    case CharacterKind::none:
      break;
  }
  return 0;
}

std::unique_ptr<std::uint8_t[]> build_classes() {
  auto classes = std::make_unique<std::uint8_t[]>(kCharacters);
  const auto runs = character_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t end = i + 1 < runs.size() ? runs[i + 1] >> 4U : kCharacters;
    std::fill(classes.get() + (runs[i] >> 4U), classes.get() + end,
              class_of(static_cast<CharacterKind>(runs[i] & 15U)));
  }
  return classes;
}

}  // namespace

const std::uint8_t* character_classes() {
  static const std::unique_ptr<std::uint8_t[]> classes = build_classes();
  return classes.get();
}

void append_character(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0U | code >> 6U);
  } else {
    if (code < 0x10000) {
      put(0xe0U | code >> 12U);
    } else {
      put(0xf0U | code >> 18U);
      put(0x80U | (code >> 12U & 0x3fU));
    }
    put(0x80U | (code >> 6U & 0x3fU));
  }
  put(0x80U | (code & 0x3fU));
}

}  // namespace dtrain
