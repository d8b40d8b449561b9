// What one cell of a table means: a number, a class, nothing, or a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// `text` without spaces and tabs around it.
std::string_view without_spaces(std::string_view text) noexcept;

/// The whole of `text` as a number, decimal or scientific, spaces around it allowed; nothing where it is
/// none. `decimal` is what stands between whole and fraction, '.' or ','. Too large for float64 is an
/// infinity.
std::optional<double> number_in(std::string_view text, char decimal = '.');

/// An integer, or a number that is one, as "2.0": what a table of floating numbers has for a class.
std::optional<std::int64_t> integer_in(std::string_view text, char decimal = '.');

/// Whether `text` stands for no value, as pandas reads it: nothing, NA, N/A, NaN, null, None and their kind;
/// and "?" and ".", which older tables have.
bool is_missing(std::string_view text) noexcept;

/// `text` as messages show it: in quotes, printable, cut after 40 bytes; "nothing" where it is empty.
std::string quoted_cell(std::string_view text);

}  // namespace dtrain
