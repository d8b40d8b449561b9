// Tables of numbers in CSV files as samples: a row is a sample, its columns are features and targets.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/formats/csv_cell.h"
#include "runtime/data/formats/csv_reader.h"
#include "runtime/data/source.h"

namespace dtrain {

/// Which columns become what, by their names in the header.
struct CsvColumns {
  /// Of x: COLUMN, a number; or COLUMN=TEXT, 1 where the column holds the text, else 0. Those of one column
  /// stand side by side and name every text that it holds.
  std::vector<std::string> features;
  std::vector<std::string> targets;       ///< of y; may be empty
  std::string label;                      ///< empty: none, or `targets_are_label`
  std::vector<std::string> classes = {};  ///< what the label holds for class 0, 1, …; empty: their numbers
  bool targets_are_label = false;         ///< probabilities of classes: the field is not y but label
};

/// What becomes of a cell without a value (is_missing).
enum class CsvMissing {
  refuse,  ///< no number and no category: the first one is refused
  report,  ///< all are counted, and refused together
  skip,    ///< its row is left out
  mean,  ///< a feature's is NaN, for which the column's mean stands (CsvTable::means); without a target or a
         ///< label a row is left out; a text's is refused
};

/// How the cells of a table are to be read.
struct CsvReading {
  std::int64_t classes = 0;  ///< labels are below it; 0: one more than the largest
  char delimiter = ',';      ///< ' ' stands for any number of spaces and tabs
  bool has_header = true;    ///< false: the first line is a row, and columns are called 0, 1, 2, …
  NumberFormat numbers = {};
  /// Finds out which features and labels are texts: they become categories (COLUMN=TEXT, sorted) and classes
  /// with names. Otherwise all must be as CsvColumns says.
  bool finds_categories = false;
  std::vector<std::string> categories = {};  ///< columns whose numbers are categories, too
  CsvMissing missing = CsvMissing::refuse;
};

/// The names in the first line of `path` (plain or gzip), in UTF-8, without spaces around them and without
/// single quotes that all of them have; where there is no header, the columns' numbers. A column without a
/// name, or two of one name, are refused where they are used. Throws DataError for a missing or empty file.
std::vector<std::string> read_csv_header(const std::string& path, const CsvReading& how = {});
/// The same of `first`, the first record of `path`.
std::vector<std::string> csv_header(const CsvRecord& first, const CsvReading& how);

/// The columns of `header` that are no target and not the label, in order. A first column without a name
/// numbers the rows, as pandas and R write them, and is left out. Throws DataError naming `path` for another
/// one without a name.
std::vector<std::string> feature_columns(const std::vector<std::string>& header, const CsvColumns& columns,
                                         const std::string& path);

/// Whether `header` looks like a row of numbers, and not like names: all are numbers, and they do not count
/// up (0, 1, 2, …) as the names of columns without names do.
bool looks_like_row(const std::vector<std::string>& header);

/// Throws DataError naming `path` where `header` has no such column, with those it has, or has two of them.
void check_csv_column(const std::string& column, const std::vector<std::string>& header,
                      const std::string& path);

/// What separates the columns of `path`, by its first two lines: a comma if the first has one, else the most
/// frequent of ';', tab and '|', else spaces if both lines then have as many fields, at least two; else a
/// comma. Throws DataError for a missing file.
char find_delimiter(const std::string& path);

/// Means and deviations of columns, as Field's; or none.
struct CsvScale {
  std::vector<float> mean, deviation;
};
struct CsvScales {
  CsvScale x, y;
  std::vector<float> fill = {};  ///< of x, as Field's
};

/// A table in memory, as a source with the fields x (float32 [features]), y (float32 [targets], where there
/// are targets) and label (int64 [], where there is one; or the targets, if they are it): 4 bytes a number, 8
/// a label. The fields x and y know their columns' names, and the label those of its classes, where they have
/// any.
class CsvTable {
 public:
  /// Reads `path` (plain or gzip) from front to back, once. Only the columns asked for are looked at. Numbers
  /// are decimal or scientific, spaces around them allowed, read as float64 and rounded to float32; labels
  /// are integers (2 or 2.0) from 0 to `how.classes` - 1, or counted (count_classes) where that is 0, or
  /// `columns.classes`. Throws DataError with row, line and column for text or nothing where a number should
  /// be, for a number that float32 cannot hold, for a category or class that is none of those named, for a
  /// row with more or fewer fields than the header, for a column that is not there or there twice, and for a
  /// file without rows. Where categories are found: for a column of both numbers and texts, and for texts
  /// that are nearly all different.
  CsvTable(const std::string& path, const CsvColumns& columns, const CsvReading& how = {});

  std::int64_t rows() const noexcept { return rows_; }
  /// The class of each row; empty without a label.
  std::span<const std::int64_t> labels() const noexcept { return labels_; }
  /// As told, or as counted; 0 without labels.
  std::int64_t classes() const noexcept { return classes_; }
  /// As given, with the categories and classes that were found: other files are read like this one by them.
  const CsvColumns& columns() const noexcept { return columns_; }
  /// What was left out and which categories were found, for people; empty: nothing.
  const std::string& notes() const noexcept { return notes_; }
  /// Mean and standard deviation (of the whole, 1 where all are equal) of each feature and target in `rows`;
  /// in all of them if `rows` is empty. Missing values count as the mean of the others.
  CsvScales scales(std::span<const std::int64_t> rows = {}) const;
  /// Of each feature the mean of the values that `rows` have, all rows if it is empty: what stands for those
  /// that are missing. Throws DataError naming the columns that have none there.
  std::vector<float> means(std::span<const std::int64_t> rows = {}) const;
  /// The source, which keeps the table. `classes` is what its label field says, `scales` what its fields x
  /// and y say.
  static std::shared_ptr<const Source> source(std::shared_ptr<const CsvTable> table, std::string name,
                                              std::int64_t classes, const CsvScales& scales = {});

 private:
  friend class CsvTableReader;

  CsvColumns columns_;
  std::string path_, notes_;
  std::int64_t rows_ = 0, classes_ = 0;
  std::vector<float> x_, y_;  // row by row
  std::vector<std::int64_t> labels_;
};

}  // namespace dtrain
