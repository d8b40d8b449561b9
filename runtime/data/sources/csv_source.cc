#include "runtime/data/sources/csv_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/sources/class_labels.h"
#include "runtime/data/sources/tensor_source.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostQuoted = 40;
constexpr double kWholeToHere = 9007199254740992;  // 2^53: float64 has every integer below

/// The file's text, plain or gzip, as the CSV reader takes it.
struct CsvFile {
  CsvFile(const std::string& path, char delimiter)
      : content(path, "a CSV file"),
        reader(
            path, [this](std::span<std::uint8_t> out) { return content.read(out); }, delimiter) {}

  ContentReader content;
  CsvReader reader;
};

std::string quoted(std::string_view text) {
  if (text.empty()) return "nothing";
  return fmt::format("\"{}\"{}", printable(text.substr(0, kMostQuoted)),
                     text.size() > kMostQuoted ? "…" : "");
}

std::string listed(const std::vector<std::string>& names) {
  return printable(fmt::format("{}", fmt::join(names, ", ")));
}

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// The whole of `text` as a number; nothing where it is none. Too large for float64 is an infinity.
std::optional<double> number_in(std::string_view text) {
  text = without_spaces(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end != text.data() + text.size() || error == std::errc::invalid_argument)
    return std::nullopt;
  // Too small for float64 is 0 in float32; the library does not tell it from too large.
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(text).c_str(), nullptr);
  return value;
}

std::vector<std::string> read_header(CsvFile& file) {
  const std::string& path = file.content.path();
  CsvRecord record;
  if (!file.reader.next(record)) throw DataError(path, 0, "a line with the columns' names", "an empty file");
  std::vector<std::string> header;
  for (std::size_t i = 0; i < record.size(); ++i) header.push_back(to_utf8(without_spaces(record[i])));
  return header;
}

std::size_t place_of(const std::string& column, const std::vector<std::string>& header,
                     const std::string& path) {
  const auto found = std::find(header.begin(), header.end(), column);
  if (found == header.end()) {
    throw DataError(path, 0, fmt::format("a column {} in the header", printable(column)),
                    listed(header) + (looks_like_row(header) ? ", which looks like a row: the first line has "
                                                               "to name the columns"
                                                             : ""));
  }
  if (std::find(found + 1, header.end(), column) != header.end())
    throw DataError(path, 0, "columns of different names", quoted(column) + " twice");
  return static_cast<std::size_t>(found - header.begin());
}

std::vector<std::size_t> places_of(const std::vector<std::string>& columns,
                                   const std::vector<std::string>& header, const std::string& path) {
  std::vector<std::size_t> places;
  for (const std::string& column : columns) places.push_back(place_of(column, header, path));
  return places;
}

/// What is wrong where: one row of one file.
struct Row {
  const std::string& path;
  const std::vector<std::string>& header;
  const CsvRecord& record;
  std::int64_t number;  // from 1, the header not counted

  [[noreturn]] void refuse(std::size_t column, std::string_view expected) const {
    throw DataError(path, record.offset(column),
                    fmt::format("{} in row {} (line {}), column {}", expected, number, record.line(),
                                printable(header[column])),
                    quoted(record[column]));
  }

  float number_at(std::size_t column) const {
    const auto value = number_in(record[column]);
    if (!value) refuse(column, "a number");
    const auto rounded = static_cast<float>(*value);
    if (!std::isfinite(rounded)) refuse(column, "a finite number that float32 can hold");
    return rounded;
  }

  std::int64_t label_at(std::size_t column, std::int64_t classes) const {
    const std::int64_t most = classes > 0 ? classes - 1 : std::numeric_limits<std::int64_t>::max() - 1;
    if (const auto value = label_in(record[column]); value && *value >= 0 && *value <= most) return *value;
    refuse(column, classes > 0 ? fmt::format("a class from 0 to {}", classes - 1)
                               : std::string("a class, an integer from 0 on,"));
  }

 private:
  /// An integer, or a number that is one, as "2.0": what a table of floating numbers has for a class.
  static std::optional<std::int64_t> label_in(std::string_view text) {
    text = without_spaces(text);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    const auto number = number_in(text);
    if (!number || std::floor(*number) != *number || std::abs(*number) >= kWholeToHere) return std::nullopt;
    return static_cast<std::int64_t>(*number);
  }
};

}  // namespace

std::vector<std::string> read_csv_header(const std::string& path, char delimiter) {
  CsvFile file(path, delimiter);
  return read_header(file);
}

std::vector<std::string> feature_columns(const std::vector<std::string>& header, const CsvColumns& columns,
                                         const std::string& path) {
  std::vector<std::string> features;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const auto& targets = columns.targets;
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

CsvTable::CsvTable(const std::string& path, const CsvColumns& columns, std::int64_t classes, char delimiter)
    : columns_(columns) {
  CsvFile file(path, delimiter);
  const std::vector<std::string> header = read_header(file);
  const auto features = places_of(columns.features, header, path),
             targets = places_of(columns.targets, header, path);
  const auto labels =
      places_of(columns.label.empty() ? std::vector<std::string>() : std::vector<std::string>{columns.label},
                header, path);
  CsvRecord record;
  while (file.reader.next(record)) {
    const Row row{path, header, record, ++rows_};
    if (record.size() != header.size()) {
      throw DataError(
          path, record.offset(0),
          fmt::format("{} fields in row {} (line {}), as in the header", header.size(), rows_, record.line()),
          std::to_string(record.size()));
    }
    for (const std::size_t column : features) x_.push_back(row.number_at(column));
    for (const std::size_t column : targets) y_.push_back(row.number_at(column));
    for (const std::size_t column : labels) labels_.push_back(row.label_at(column, classes));
  }
  if (rows_ == 0) throw DataError(path, -1, "at least one row below the header", "none");
  classes_ = classes > 0 ? classes : count_classes(labels_, path);
}

std::shared_ptr<const Source> CsvTable::source(std::shared_ptr<const CsvTable> table, std::string name,
                                               std::int64_t classes) {
  const auto matrix = [&](const std::vector<float>& values, std::size_t columns) {
    const auto width = static_cast<std::int64_t>(columns);
    return View{const_cast<float*>(values.data()), DType::f32, {table->rows_, width}, {width, 1}};
  };
  std::vector<TensorField> fields;
  if (!table->columns_.features.empty())
    fields.push_back(
        {"x", matrix(table->x_, table->columns_.features.size()), table, 0, table->columns_.features});
  if (!table->columns_.targets.empty())
    fields.push_back(
        {"y", matrix(table->y_, table->columns_.targets.size()), table, 0, table->columns_.targets});
  if (!table->columns_.label.empty()) {
    const View labels{const_cast<std::int64_t*>(table->labels_.data()), DType::i64, {table->rows_}, {1}};
    fields.push_back({"label", labels, table, classes});
  }
  return std::make_shared<TensorSource>(std::move(name), std::move(fields));
}

}  // namespace dtrain
