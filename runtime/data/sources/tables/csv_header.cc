// A table's first lines: the names of its columns, and what separates them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/formats/csv_cell.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/sources/csv_source.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostLine = 1 << 20;

/// The first two lines of `path` that are not empty, without line ends; what is in quotes is letters.
std::array<std::string, 2> first_lines(const std::string& path) {
  ContentReader content(path, "a CSV file");
  std::vector<std::uint8_t> bytes(kMostLine);
  bytes.resize(content.read(bytes));
  std::array<std::string, 2> lines;
  bool in_quotes = false;
  std::size_t line = 0;
  for (const std::uint8_t byte : bytes) {
    if (byte == '"') in_quotes = !in_quotes;
    if (byte == '\n' && !in_quotes) {
      if (!without_spaces(lines[line]).empty() && ++line == lines.size()) break;
      continue;
    }
    if (byte != '\r') lines[line] += in_quotes ? 'q' : static_cast<char>(byte);
  }
  return lines;
}

std::int64_t words_in(std::string_view line) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char c : line) {
    const bool space = c == ' ' || c == '\t';
    words += !space && !inside;
    inside = !space;
  }
  return words;
}

}  // namespace

char find_delimiter(const std::string& path) {
  const auto [header, row] = first_lines(path);
  if (header.find(',') != std::string::npos) return ',';
  char best = ',';
  std::int64_t most = 0;
  for (const char each : {';', '\t', '|'}) {
    const auto count = std::ranges::count(header, each);
    if (count > most) best = each;
    most = std::max<std::int64_t>(most, count);
  }
  if (most > 0) return best;
  const std::int64_t words = words_in(header);
  return words > 1 && words == words_in(row) ? ' ' : ',';
}

std::vector<std::string> csv_header(const CsvRecord& first, const CsvReading& how) {
  std::vector<std::string> header;
  for (std::size_t i = 0; i < first.size(); ++i)
    header.push_back(how.has_header ? to_utf8(without_spaces(first[i])) : std::to_string(i));
  const auto in_quotes = [](const std::string& name) {
    return name.size() > 2 && name.front() == '\'' && name.back() == '\'';
  };
  if (std::ranges::all_of(header, in_quotes))
    for (std::string& name : header) name = name.substr(1, name.size() - 2);
  return header;
}

std::vector<std::string> read_csv_header(const std::string& path, const CsvReading& how) {
  ContentReader content(path, "a CSV file");
  CsvReader reader(
      path, [&](std::span<std::uint8_t> out) { return content.read(out); }, how.delimiter);
  CsvRecord record;
  if (!reader.next(record)) throw DataError(path, 0, "a line with the columns' names", "an empty file");
  return csv_header(record, how);
}

void check_csv_column(const std::string& column, const std::vector<std::string>& header,
                      const std::string& path) {
  const auto count = std::ranges::count(header, column);
  if (count == 0) {
    throw DataError(path, 0, fmt::format("a column {} in the header", printable(column)),
                    printable(fmt::format("{}", fmt::join(header, ", "))) +
                        (looks_like_row(header) ? ", which looks like a row: the first line has to name the "
                                                  "columns, or header=none calls them 0, 1, 2, …"
                                                : ""));
  }
  if (count > 1) throw DataError(path, 0, "columns of different names", quoted_cell(column) + " twice");
}

std::vector<std::string> feature_columns(const std::vector<std::string>& header, const CsvColumns& columns,
                                         const std::string& path) {
  std::vector<std::string> features;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const auto& targets = columns.targets;
    if (header[i].empty() && i == 0) continue;
    if (header[i].empty()) {
      throw DataError(path, 0, fmt::format("a name for column {}", i + 1),
                      "nothing; name it, or list the columns to use: features=A+B");
    }
    if (header[i] != columns.label && std::find(targets.begin(), targets.end(), header[i]) == targets.end())
      features.push_back(header[i]);
  }
  return features;
}

bool looks_like_row(const std::vector<std::string>& header) {
  std::optional<double> before;
  bool counts_up = true;
  for (const std::string& name : header) {
    const auto number = number_in(name);
    if (!number) return false;
    counts_up = counts_up && (before ? *number == *before + 1 : std::floor(*number) == *number);
    before = number;
  }
  return !counts_up;
}

}  // namespace dtrain
