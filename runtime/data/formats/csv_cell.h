// What one cell of a table means: a number, a class, nothing, or a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dtrain {

/// `text` without spaces and tabs around it.
std::string_view without_spaces(std::string_view text) noexcept;

/// How a table writes its numbers: 1,234.5 with '.' and ','.
struct NumberFormat {
  char decimal = '.';     ///< between whole and fraction: '.' or ','
  char thousands = '\0';  ///< between groups of three digits of the whole, another one; 0: nothing
};

/// The separators of thousands that there are names for.
inline constexpr std::pair<std::string_view, char> kThousands[] = {
    {"comma", ','}, {"point", '.'}, {"space", ' '}, {"apostrophe", '\''}};

/// The whole of `text` as a number, decimal or scientific, spaces around it allowed; nothing where it is
/// none, or where separators of thousands stand anywhere but between groups of three digits. Too large for
/// float64 is an infinity.
std::optional<double> number_in(std::string_view text, const NumberFormat& format = {});

/// An integer, or a number that is one, as "2.0": what a table of floating numbers has for a class.
std::optional<std::int64_t> integer_in(std::string_view text, const NumberFormat& format = {});

/// Whether `text` stands for no value, as pandas reads it: nothing, NA, N/A, NaN, null, None and their kind;
/// and "?" and ".", which older tables have.
bool is_missing(std::string_view text) noexcept;

/// `text` as messages show it: in quotes, printable, cut after 40 bytes; "nothing" where it is empty.
std::string quoted_cell(std::string_view text);

}  // namespace dtrain
