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

/// The names in the first line of `path` (plain or gzip). Throws DataError for a missing file, none or an
/// empty name, or one that is there twice.
std::vector<std::string> read_csv_header(const std::string& path, char delimiter = ',');

/// The columns of `header` that are no target and not the label, in order.
std::vector<std::string> feature_columns(const std::vector<std::string>& header, const CsvColumns& columns);

/// A table in memory, as a source with the fields x (float32 [features]), y (float32 [targets], where there
/// are targets) and label (int64 [], where there is one): 4 bytes a number, 8 a label.
class CsvTable {
 public:
  /// Reads `path` (plain or gzip) from front to back, once. Only the columns asked for must be numbers:
  /// decimal or scientific, spaces around them allowed, read as float64 and rounded to float32; labels are
  /// integers from 0 to `classes` - 1, or of any size where `classes` is 0. Throws DataError with row, line
  /// and column for text or nothing where a number should be, for a number that float32 cannot hold, for a
  /// row with more or fewer fields than the header, for a column that is not there, and for a file without
  /// rows.
  CsvTable(const std::string& path, const CsvColumns& columns, std::int64_t classes = 0,
           char delimiter = ',');

  std::int64_t rows() const noexcept { return rows_; }
  /// One more than the largest label; 0 without labels.
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
