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

}  // namespace

std::string_view without_spaces(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<double> number_in(std::string_view text, char decimal) {
  text = without_spaces(text);
  if (decimal == '.') return plain_number_in(text);
  if (text.find('.') != std::string_view::npos) return std::nullopt;
  std::string with_point(text);
  std::ranges::replace(with_point, decimal, '.');
  return plain_number_in(with_point);
}

std::optional<std::int64_t> integer_in(std::string_view text, char decimal) {
  text = without_spaces(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const auto number = number_in(text, decimal);
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
