#include "worker/benchmark/byte_sizes.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/options.h"

namespace dtrain {
namespace {

// More than any machine has, so that nothing overflows.
constexpr std::int64_t kMost = std::int64_t{1} << 50;

int shift_of(char letter) noexcept {
  switch (letter) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    default:
      return 0;
  }
}

}  // namespace

std::optional<std::size_t> parse_bytes(std::string_view text) {
  const int shift = text.empty() ? 0 : shift_of(text.back());
  if (shift != 0) text.remove_suffix(1);
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > kMost >> shift) return std::nullopt;
  return static_cast<std::size_t>(*number) << shift;
}

std::vector<std::size_t> sizes_between(std::size_t least, std::size_t most, std::size_t factor,
                                       std::size_t width) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = least; bytes <= most; bytes *= factor) {
    const std::size_t whole = std::max(bytes / width, std::size_t{1}) * width;
    if (sizes.empty() || sizes.back() != whole) sizes.push_back(whole);
    if (bytes > most / factor) break;
  }
  return sizes;
}

}  // namespace dtrain
