// Unicode's normal forms, by utf8proc, as of the Unicode version that Hugging Face's tokenizers have them of.
#include "runtime/data/tokens/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/data/tokens/unicode.h"

namespace dtrain {
namespace {

struct Range {
  char32_t first, last;
};

/// Characters that Unicode has normalized since version 9, and tokenizers do not: they are left as they are,
/// and what stands around them is normalized by itself.
constexpr Range kNewer[] = {
    {0x7fd, 0x7fd},     {0x897, 0x897},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},
    {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},
    {0x105c0, 0x105ff}, {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10ef0, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
    {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113ff}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x11930, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16100, 0x1613f}, {0x16d40, 0x16d7f}, {0x16ff0, 0x16ff1}, {0x1ccd6, 0x1ccf9},
    {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1e5d0, 0x1e5ff}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
/// No character below it is changed by a composed form, none below the other by a compatible one.
constexpr char32_t kFirstComposed = 0x300, kFirstCompatible = 0x80;

bool is_newer(char32_t code) {
  const auto* const range =
      std::lower_bound(std::begin(kNewer), std::end(kNewer), code,
                       [](const Range& each, char32_t wanted) { return each.last < wanted; });
  return range != std::end(kNewer) && range->first <= code;
}

int options_of(Normalization normalization) {
  switch (normalization) {
    case Normalization::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case Normalization::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case Normalization::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    default:
      break;
  }
  return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
}

/// Appends `text`, which has no newer characters, normalized.
void append_normalized(std::string_view text, Normalization normalization, std::string& result) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                              static_cast<utf8proc_option_t>(options_of(normalization)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (bytes < 0) {
    throw Error(fmt::format("normalizing {} bytes of text: expected UTF-8, got: {}", text.size(),
                            utf8proc_errmsg(bytes)));
  }
  result.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string normalize(std::string_view text, Normalization normalization) {
  const char32_t first_changed = normalization == Normalization::nfc ? kFirstComposed : kFirstCompatible;
  std::string result;
  std::size_t done = 0;
  bool changes = false;
  const auto flush = [&](std::size_t end) {
    if (changes) {
      append_normalized(text.substr(done, end - done), normalization, result);
    } else {
      result += text.substr(done, end - done);
    }
    done = end;
    changes = false;
  };
  for (std::size_t at = 0; at < text.size();) {
    const Character found = decode_character(text.data() + at);
    if (found.code >= first_changed && is_newer(found.code)) {
      flush(at);
      result += text.substr(at, found.bytes);
      done = at + found.bytes;
    } else if (found.code >= first_changed) {
      changes = true;
    }
    at += found.bytes;
  }
  flush(text.size());
  return result;
}

void check_can_normalize(Normalization /*normalization*/) {}

}  // namespace dtrain
