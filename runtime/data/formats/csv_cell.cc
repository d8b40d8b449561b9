#include "runtime/data/formats/csv_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostQuoted = 40;
constexpr double kWholeToHere = 9007199254740992;  // 2^53: float64 has every integer below

constexpr std::array<std::string_view, 17> kMissing = {"",     "NA",   "N/A",      "n/a",  "#N/A", "<NA>",
                                                       "#NA",  "NaN",  "nan",      "-NaN", "-nan", "NULL",
                                                       "null", "None", "#N/A N/A", "?",    "."};

std::optional<double> plain_number_in(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end != text.data() + text.size() || error == std::errc::invalid_argument)
    return std::nullopt;
  // Too small for float64 is 0 in float32; the library does not tell it from too large.
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(text).c_str(), nullptr);
  return value;
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Digits without the separators between groups of three of them; nothing where these stand elsewhere.
std::optional<std::string> without_separators(std::string_view whole, char separator) {
  std::string digits;
  std::size_t group = 0;  // digits since the last separator
  bool separated = false;
  for (const char c : whole) {
    if (c != separator) {
      digits += c;
      ++group;
      continue;
    }
    if (group == 0 || group > 3 || (separated && group < 3)) return std::nullopt;
    separated = true;
    group = 0;
  }
  if (separated && group != 3) return std::nullopt;
  return digits;
}

}  // namespace

std::string_view without_spaces(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<double> number_in(std::string_view text, const NumberFormat& format) {
  text = without_spaces(text);
  if (format.decimal == '.' && format.thousands == '\0') return plain_number_in(text);
  const std::size_t signs = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  std::size_t end = signs;  // of the whole
  while (end < text.size() && (is_digit(text[end]) || text[end] == format.thousands)) ++end;
  const auto digits = without_separators(text.substr(signs, end - signs), format.thousands);
  if (!digits) return std::nullopt;
  std::string plain = fmt::format("{}{}{}", text.substr(0, signs), *digits, text.substr(end));
  if (format.decimal != '.') {
    if (plain.find('.') != std::string::npos) return std::nullopt;
    std::ranges::replace(plain, format.decimal, '.');
  }
  return plain_number_in(plain);
}

std::optional<std::int64_t> integer_in(std::string_view text, const NumberFormat& format) {
  text = without_spaces(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const auto number = number_in(text, format);
  if (!number || std::floor(*number) != *number || std::abs(*number) >= kWholeToHere) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

bool is_missing(std::string_view text) noexcept {
  return std::ranges::find(kMissing, without_spaces(text)) != kMissing.end();
}

std::string quoted_cell(std::string_view text) {
  if (text.empty()) return "nothing";
  return fmt::format("\"{}\"{}", printable(text.substr(0, kMostQuoted)),
                     text.size() > kMostQuoted ? "…" : "");
}

}  // namespace dtrain
