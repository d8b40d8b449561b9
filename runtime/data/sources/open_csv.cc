#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/data/sources/csv_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/source_spec.h"

namespace dtrain {
namespace {

constexpr std::string_view kSettings =
    "target=COL, label=COL, features=COL+COL, classes=N, delimiter=C, test=FILE, split=SHARE or split-seed=N";

/// "csv:…" taken apart.
struct Request {
  std::string file;
  CsvColumns columns;
  std::int64_t classes = 0;
  char delimiter = ',';
  std::optional<std::string> test;
  HoldOut hold_out;
};

char parse_delimiter(const SourceSpec& spec, const std::string& text) {
  if (text == "tab") return '\t';
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    spec.refuse("delimiter to be one character (%2C for a comma) or tab", text);
  return text[0];
}

Request parse(SourceSpec& spec) {
  Request request;
  request.file = spec.file();
  if (request.file.empty()) spec.refuse("a file first, as in csv:houses.csv,target=price,split=0.9", "none");
  request.columns = {spec.take_list("features"), spec.take_list("target"), spec.take("label").value_or("")};
  request.classes = spec.take_integer("classes", 0, INT64_MAX, 0);
  request.delimiter = parse_delimiter(spec, spec.take("delimiter").value_or(","));
  request.test = spec.take("test");
  request.hold_out = HoldOut::take(spec);
  spec.finish(kSettings);
  request.hold_out.check(spec, request.test.has_value());
  if (request.columns.targets.empty() && request.columns.label.empty())
    spec.refuse("what is to be learned, target=COL (numbers) or label=COL (classes)", "neither");
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

}  // namespace

Splits open_csv(std::string_view text, const std::filesystem::path& folder) {
  SourceSpec spec("csv", text);
  Request request = parse(spec);
  const std::string file = (folder / request.file).string();
  if (request.columns.features.empty())
    request.columns.features =
        feature_columns(read_csv_header(file, request.delimiter), request.columns, file);
  check_different(spec, request.columns);
  const auto open = [&](const std::string& path, std::int64_t classes) {
    return std::make_shared<const CsvTable>(path, request.columns, classes, request.delimiter);
  };
  const auto table = open(file, request.classes);
  const std::int64_t classes = request.classes > 0 ? request.classes : table->classes();
  if (!request.test) {
    return split_source(CsvTable::source(table, fmt::format("csv ({})", file), classes),
                        request.hold_out.share, request.hold_out.seed);
  }
  const std::string test = (folder / *request.test).string();
  return {CsvTable::source(table, fmt::format("csv train ({})", file), classes),
          CsvTable::source(open(test, classes), fmt::format("csv test ({})", test), classes)};
}

}  // namespace dtrain
