#include "runtime/data/formats/csv_column.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/formats/csv_cell.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostListed = 8;

/// Digits with what is written around them in bills and statistics: "1,234", "3,14", "$5", "12%".
bool is_marked_number(std::string_view text) {
  constexpr std::string_view kMarks = ",$%' ";
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_of(kMarks) != std::string_view::npos &&
         text.find_first_not_of("0123456789.,$%' ") == std::string_view::npos;
}

/// What to do about such a number, which is none in the table's own format; nothing for other texts.
std::optional<std::string> advice_on_marks(std::string_view text, const NumberFormat& format) {
  for (const auto& [word, separator] : kThousands) {
    if (format.thousands != '\0' || separator == format.decimal) continue;
    if (!number_in(text, {format.decimal, separator})) continue;
    return fmt::format("if it separates thousands by {}, say thousands={}{}", quoted_cell({&separator, 1}),
                       word,
                       separator == ',' ? "; if the comma stands before the fraction, decimal=comma" : "");
  }
  if (!is_marked_number(without_spaces(text))) return std::nullopt;
  return fmt::format(
      "write it without separators and signs{}",
      format.decimal == '.' ? ", or, if a comma stands before the fraction, say decimal=comma" : "");
}

}  // namespace

std::string as_setting(std::string_view name) {
  std::string text;
  for (const char c : name)
    text += c == ',' || c == '+' || c == '%' ? fmt::format("%{:02X}", static_cast<unsigned char>(c))
                                             : std::string(1, c);
  return printable(text);
}

CsvColumn::CsvColumn(std::string path, std::string name, CsvColumnOptions how)
    : path_(std::move(path)), name_(std::move(name)), how_(std::move(how)), texts_(how_.known) {
  for (const std::string& text : texts_) codes_.emplace(text, static_cast<std::int64_t>(codes_.size()));
}

void CsvColumn::refuse(const CsvPlace& at, std::string_view expected, std::string_view advice) const {
  throw DataError(
      path_, at.offset,
      fmt::format("{} in row {} (line {}), column {}", expected, at.row, at.line, printable(name_)),
      fmt::format("{}{}{}", quoted_cell(at.text), advice.empty() ? "" : "; ", advice));
}

void CsvColumn::refuse_text(const CsvPlace& at, bool other_rows_have_numbers) const {
  const std::string name = as_setting(name_);
  if (const auto advice = advice_on_marks(at.text, how_.numbers)) refuse(at, "a number", *advice);
  if (!how_.finds) refuse(at, "a number");
  if (!other_rows_have_numbers) refuse(at, "a number", fmt::format("label={} learns classes", name));
  refuse(at, "a number",
         fmt::format("other rows have numbers there: correct it, or say categories={0} to make a category of "
                     "each text, or without={0} to leave the column out",
                     name));
}

bool CsvColumn::counts_as_missing(const CsvCell& cell) {
  if (!how_.counts_missing || !is_missing(cell.text)) return false;
  ++missing_;
  if (!first_missing_) first_missing_ = CsvPlace(cell);
  return true;
}

float CsvColumn::finite(const CsvCell& cell, double number) const {
  const auto rounded = static_cast<float>(number);
  if (!std::isfinite(rounded)) refuse(CsvPlace(cell), "a finite number that float32 can hold");
  return rounded;
}

float CsvColumn::number(const CsvCell& cell) {
  if (counts_as_missing(cell)) return how_.stands_for_missing;
  const auto value = number_in(cell.text, how_.numbers);
  if (!value) refuse_text(CsvPlace(cell), false);
  return finite(cell, *value);
}

float CsvColumn::feature(const CsvCell& cell) {
  if (how_.is_named || !how_.known.empty()) return static_cast<float>(std::max<std::int64_t>(code(cell), 0));
  if (!how_.finds) return number(cell);
  if (counts_as_missing(cell)) return how_.stands_for_missing;
  if (const auto value = number_in(cell.text, how_.numbers)) {
    if (first_text_) refuse_text(first_text_, true);
    has_numbers_ = true;
    return finite(cell, *value);
  }
  if (!first_text_) first_text_ = CsvPlace(cell);
  if (has_numbers_ || advice_on_marks(cell.text, how_.numbers)) refuse_text(CsvPlace(cell), true);
  return static_cast<float>(code(cell));
}

std::int64_t CsvColumn::code(const CsvCell& cell) {
  if (counts_as_missing(cell)) return -1;
  std::string text = to_utf8(without_spaces(cell.text));
  const auto found = codes_.find(text);
  if (found != codes_.end()) return found->second;
  if (!how_.known.empty()) {
    const auto listed = std::span(how_.known).first(std::min(how_.known.size(), kMostListed));
    refuse(CsvPlace(cell), fmt::format("one of {}{}", printable(fmt::format("{}", fmt::join(listed, ", "))),
                                       listed.size() < how_.known.size() ? ", …" : ""));
  }
  if (texts_.size() == kMostKept) {
    too_many_ = true;
    return 0;
  }
  const auto code = static_cast<std::int64_t>(texts_.size());
  places_.emplace_back(cell);
  texts_.push_back(text);
  codes_.emplace(std::move(text), code);
  return code;
}

}  // namespace dtrain
