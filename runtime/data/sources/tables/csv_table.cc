// A table that was read, as a source: what its columns are scaled and filled by, and its fields.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/data/formats/csv_column.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/sources/csv_source.h"
#include "runtime/data/sources/tensor_source.h"

namespace dtrain {
namespace {

using Names = std::vector<std::string>;

/// Of each of `width` columns of `values`, row by row, over `rows`, or all of them where there are none. NaN
/// counts as the mean of the others, which is NaN where there are none.
CsvScale scale_of(const std::vector<float>& values, std::size_t width, std::span<const std::int64_t> rows) {
  if (width == 0) return {};
  const std::size_t count = rows.empty() ? values.size() / width : rows.size();
  const auto row = [&](std::size_t i) {
    return &values[(rows.empty() ? i : static_cast<std::size_t>(rows[i])) * width];
  };
  std::vector<double> means(width), squares(width);
  std::vector<std::int64_t> found(width);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < width; ++c) {
      if (std::isnan(row(i)[c])) continue;
      means[c] += row(i)[c];
      ++found[c];
    }
  }
  for (std::size_t c = 0; c < width; ++c) means[c] /= static_cast<double>(found[c]);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < width; ++c) {
      const double off = std::isnan(row(i)[c]) ? 0 : row(i)[c] - means[c];
      squares[c] += off * off;
    }
  }
  CsvScale scale{{means.begin(), means.end()}, {}};
  for (const double sum : squares) {
    const auto deviation = static_cast<float>(std::sqrt(sum / static_cast<double>(count)));
    scale.deviation.push_back(deviation > 0 && std::isfinite(deviation) ? deviation : 1);
  }
  return scale;
}

}  // namespace

CsvScales CsvTable::scales(std::span<const std::int64_t> rows) const {
  return {scale_of(x_, columns_.features.size(), rows), scale_of(y_, columns_.targets.size(), rows)};
}

std::vector<float> CsvTable::means(std::span<const std::int64_t> rows) const {
  std::vector<float> means = scale_of(x_, columns_.features.size(), rows).mean;
  Names empty;
  for (std::size_t i = 0; i < means.size(); ++i)
    if (std::isnan(means[i])) empty.push_back(columns_.features[i]);
  if (empty.empty()) return means;
  Names settings;
  for (const std::string& name : empty) settings.push_back(as_setting(name));
  throw DataError(path_, -1, "a value in each column of the rows that are trained on, for missing=mean",
                  fmt::format("none of {}; leave {} out with without={}",
                              printable(fmt::format("{}", fmt::join(empty, ", "))),
                              empty.size() == 1 ? "it" : "them", fmt::join(settings, "+")));
}

std::shared_ptr<const Source> CsvTable::source(std::shared_ptr<const CsvTable> table, std::string name,
                                               std::int64_t classes, const CsvScales& scales) {
  const auto matrix = [&](const char* field, const std::vector<float>& values, const Names& names,
                          const CsvScale& scale) {
    const auto width = static_cast<std::int64_t>(names.size());
    const View view{const_cast<float*>(values.data()), DType::f32, {table->rows_, width}, {width, 1}};
    return TensorField{.name = field,
                       .view = view,
                       .owner = table,
                       .columns = names,
                       .mean = scale.mean,
                       .deviation = scale.deviation};
  };
  const CsvColumns& columns = table->columns_;
  std::vector<TensorField> fields;
  if (!columns.features.empty()) {
    fields.push_back(matrix("x", table->x_, columns.features, scales.x));
    fields.back().fill = scales.fill;
  }
  if (!columns.targets.empty())
    fields.push_back(matrix(columns.targets_are_label ? "label" : "y", table->y_, columns.targets, scales.y));
  if (!columns.label.empty()) {
    const View labels{const_cast<std::int64_t*>(table->labels_.data()), DType::i64, {table->rows_}, {1}};
    fields.push_back({"label", labels, table, classes, {}, columns.classes});
  }
  return std::make_shared<TensorSource>(std::move(name), std::move(fields));
}

}  // namespace dtrain
