// Sizes of messages as people write them, and the row of sizes a benchmark goes through.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrain {

/// Bytes of "512", "1K", "64M" or "2G" (small letters too; K is 1024); nullopt for anything else, 0 included.
std::optional<std::size_t> parse_bytes(std::string_view text);

/// least, least·factor, … up to `most`, each cut to whole elements of `width` bytes and at least one of them,
/// none twice. factor ≥ 2.
std::vector<std::size_t> sizes_between(std::size_t least, std::size_t most, std::size_t factor,
                                       std::size_t width);

}  // namespace dtrain
