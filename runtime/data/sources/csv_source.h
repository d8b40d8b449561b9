// Tables of numbers in CSV files as samples: a row is a sample, its columns are features and targets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/formats/csv_reader.h"
#include "runtime/data/source.h"

namespace dtrain {

/// Which columns become what, by their names in the header.
struct CsvColumns {
  std::vector<std::string> features;  ///< of x
  std::vector<std::string> targets;   ///< of y; may be empty
  std::string label;                  ///< empty: none
};

/// The names in the first line of `path` (plain or gzip), in UTF-8, without spaces around them. A column
/// without a name, or two of one name, are refused where they are used. Throws DataError for a missing or
/// empty file.
std::vector<std::string> read_csv_header(const std::string& path, char delimiter = ',');

/// The columns of `header` that are no target and not the label, in order. Throws DataError naming `path` for
/// one without a name.
std::vector<std::string> feature_columns(const std::vector<std::string>& header, const CsvColumns& columns,
                                         const std::string& path);

/// Whether `header` looks like a row of numbers, and not like names: all are numbers, and they do not count
/// up (0, 1, 2, …) as the names of columns without names do.
bool looks_like_row(const std::vector<std::string>& header);

/// A table in memory, as a source with the fields x (float32 [features]), y (float32 [targets], where there
/// are targets) and label (int64 [], where there is one): 4 bytes a number, 8 a label. The fields x and y
/// know their columns' names.
class CsvTable {
 public:
  /// Reads `path` (plain or gzip) from front to back, once. Only the columns asked for must be numbers:
  /// decimal or scientific, spaces around them allowed, read as float64 and rounded to float32; labels are
  /// integers (2 or 2.0) from 0 to `classes` - 1, or counted (count_classes) where `classes` is 0. Throws
  /// DataError with row, line and column for text or nothing where a number should be, for a number that
  /// float32 cannot hold, for a row with more or fewer fields than the header, for a column that is not there
  /// or there twice, and for a file without rows.
  CsvTable(const std::string& path, const CsvColumns& columns, std::int64_t classes = 0,
           char delimiter = ',');

  std::int64_t rows() const noexcept { return rows_; }
  /// As told, or as counted; 0 without labels.
  std::int64_t classes() const noexcept { return classes_; }
  /// The source, which keeps the table. `classes` is what its label field says.
  static std::shared_ptr<const Source> source(std::shared_ptr<const CsvTable> table, std::string name,
                                              std::int64_t classes);

 private:
  CsvColumns columns_;
  std::int64_t rows_ = 0, classes_ = 0;
  std::vector<float> x_, y_;  // row by row
  std::vector<std::int64_t> labels_;
};

}  // namespace dtrain
