#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/data/sources/open_files.h"

namespace dtrain {
namespace {

constexpr std::string_view kSettings =
    "target=COL+COL, label=COL, label=COL+COL, features=COL+COL, without=COL+COL, categories=COL+COL, "
    "missing=skip or mean, "
    "classes=N, scale=standard, header=none, delimiter=C, decimal=comma, thousands=comma, test=FILE, "
    "split=SHARE, fold=K/N, stratify=yes or split-seed=N";

/// "csv:…" taken apart.
struct Request {
  std::string file;
  CsvColumns columns;
  std::vector<std::string> without;
  CsvReading how;
  bool has_delimiter = false, scales = false;
  std::optional<std::string> test;
  HoldOut hold_out;
};

char parse_delimiter(const SourceSpec& spec, const std::string& text) {
  constexpr std::pair<std::string_view, char> kWords[] = {
      {"comma", ','}, {"semicolon", ';'}, {"space", ' '}, {"tab", '\t'}};
  for (const auto& [word, delimiter] : kWords)
    if (text == word) return delimiter;
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    spec.refuse("delimiter to be one character, or comma, semicolon, space or tab", text);
  return text[0];
}

Request parse(SourceSpec& spec) {
  Request request;
  request.file = spec.file();
  if (request.file.empty()) spec.refuse("a file first, as in csv:houses.csv,target=price,split=0.9", "none");
  request.columns = {spec.take_list("features"), spec.take_list("target"), ""};
  std::vector<std::string> label = spec.take_list("label");
  request.columns.targets_are_label = label.size() > 1;
  if (request.columns.targets_are_label && !request.columns.targets.empty())
    spec.refuse("either target=COL+COL or the columns of classes' probabilities, label=COL+COL", "both");
  if (label.size() == 1) request.columns.label = label.front();
  if (label.size() > 1) request.columns.targets = std::move(label);
  request.without = spec.take_list("without");
  request.has_delimiter = spec.has("delimiter");
  request.how = take_csv_reading(spec);
  const std::string scale = spec.take("scale").value_or("none");
  if (scale != "none" && scale != "standard") spec.refuse("scale to be none or standard", scale);
  request.scales = scale == "standard";
  request.test = spec.take("test");
  request.hold_out = take_hold_out(spec);
  spec.finish(kSettings);
  check_hold_out(spec, request.hold_out, request.test.has_value());
  if (request.columns.targets.empty() && request.columns.label.empty())
    spec.refuse(
        "what is to be learned, target=COL (numbers), label=COL (classes) or "
        "label=COL+COL (their probabilities)",
        "neither");
  return request;
}

// A target among the features would be learned by heart.
void check_different(const SourceSpec& spec, const CsvColumns& columns) {
  std::vector<std::string> all = columns.features;
  all.insert(all.end(), columns.targets.begin(), columns.targets.end());
  if (!columns.label.empty()) all.push_back(columns.label);
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  if (twice != all.end()) spec.refuse("each column once among features, target and label", *twice);
  if (columns.features.empty()) spec.refuse("a column that is neither target nor label, for x", "none");
}

/// Which columns are features, where none are named: all that are nothing else.
void choose_features(const SourceSpec& spec, Request& request, const std::string& file) {
  const std::vector<std::string> header = read_csv_header(file, request.how);
  auto& features = request.columns.features;
  std::vector<std::string> named = request.columns.targets;
  if (!request.columns.label.empty()) named.push_back(request.columns.label);
  for (const auto* more : {&features, &request.without, &request.how.categories})
    named.insert(named.end(), more->begin(), more->end());
  for (const std::string& column : named) check_csv_column(column, header, file);
  if (!features.empty() && !request.without.empty()) spec.refuse("either features or without", "both");
  if (features.empty()) {
    CsvColumns others = request.columns;
    others.targets.insert(others.targets.end(), request.without.begin(), request.without.end());
    features = feature_columns(header, others, file);
  }
  check_different(spec, request.columns);
}

char take_thousands(SourceSpec& spec) {
  const auto word = spec.take("thousands");
  if (!word) return '\0';
  for (const auto& [known, separator] : kThousands)
    if (*word == known) return separator;
  spec.refuse("thousands to be comma, point, space or apostrophe", *word);
}

/// What the fields of a table say about its columns, by the rows that are trained on: all where none are
/// named.
CsvScales scales_of(const CsvTable& table, const Request& request, std::span<const std::int64_t> rows = {}) {
  CsvScales scales;
  if (request.how.missing == CsvMissing::mean) scales.fill = table.means(rows);
  if (!request.scales) return scales;
  auto [x, y, none] = table.scales(rows);
  scales.x = std::move(x);
  if (!request.columns.targets_are_label) scales.y = std::move(y);
  return scales;
}

}  // namespace

CsvReading take_csv_reading(SourceSpec& spec) {
  CsvReading how;
  how.classes = spec.take_integer("classes", 0, INT64_MAX, 0);
  how.categories = spec.take_list("categories");
  how.delimiter = parse_delimiter(spec, spec.take("delimiter").value_or("comma"));
  const std::string header = spec.take("header").value_or("names");
  if (header != "names" && header != "none") spec.refuse("header to be names or none", header);
  how.has_header = header == "names";
  const std::string decimal = spec.take("decimal").value_or("point");
  if (decimal != "point" && decimal != "comma") spec.refuse("decimal to be point or comma", decimal);
  how.numbers.decimal = decimal == "comma" ? ',' : '.';
  how.numbers.thousands = take_thousands(spec);
  if (how.numbers.thousands == how.numbers.decimal)
    spec.refuse("thousands to be separated by something other than the fraction (decimal)", decimal);
  const std::string missing = spec.take("missing").value_or("stop");
  if (missing != "stop" && missing != "skip" && missing != "mean")
    spec.refuse("missing to be stop, skip or mean", missing);
  how.missing = missing == "skip"   ? CsvMissing::skip
                : missing == "mean" ? CsvMissing::mean
                                    : CsvMissing::report;
  return how;
}

Splits open_csv(std::string_view text, const std::filesystem::path& folder, Log* log) {
  SourceSpec spec("csv", text);
  Request request = parse(spec);
  const std::string file = (folder / request.file).string();
  if (!request.has_delimiter) request.how.delimiter = find_delimiter(file);
  choose_features(spec, request, file);
  request.how.finds_categories = true;
  const auto open = [&](const std::string& path) {
    const auto table = std::make_shared<const CsvTable>(path, request.columns, request.how);
    if (log != nullptr && !table->notes().empty())
      log->write(LogLevel::info, fmt::format("{}: {}", path, table->notes()));
    return table;
  };
  const auto table = open(file);
  const std::int64_t classes = table->classes();
  if (!request.test) {
    const HoldOut& how = request.hold_out;
    const CsvScales scales =
        scales_of(*table, request, split_indices(table->rows(), how, table->labels()).train);
    return split_source(CsvTable::source(table, fmt::format("csv ({})", file), classes, scales), how,
                        table->labels());
  }
  const CsvScales scales = scales_of(*table, request);
  const std::string test = (folder / *request.test).string();
  request.columns = table->columns();
  request.how.classes = classes;
  request.how.finds_categories = false;
  if (!request.has_delimiter) request.how.delimiter = find_delimiter(test);
  return {CsvTable::source(table, fmt::format("csv train ({})", file), classes, scales),
          CsvTable::source(open(test), fmt::format("csv test ({})", test), classes, scales)};
}

}  // namespace dtrain
