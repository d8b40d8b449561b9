// One column of a table while it is read: what its cells mean is known only when all of them were seen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/data/formats/csv_cell.h"

namespace dtrain {

/// A cell and where it stands. The text is borrowed from the record.
struct CsvCell {
  std::string_view text;
  std::int64_t row = 0;  ///< from 1, the header not counted
  std::int64_t line = 0, offset = -1;
};

/// Where something was met first.
struct CsvPlace {
  CsvPlace() = default;
  explicit CsvPlace(const CsvCell& cell)
      : text(cell.text), row(cell.row), line(cell.line), offset(cell.offset) {}
  explicit operator bool() const noexcept { return row > 0; }

  std::string text;
  std::int64_t row = 0, line = 0, offset = -1;
};

/// How the cells of a column are to be understood.
struct CsvColumnOptions {
  NumberFormat numbers = {};
  bool finds = false;                   ///< texts become categories
  bool counts_missing = false;          ///< cells without a value are counted, not refused
  float stands_for_missing = 0;         ///< the number such a cell is read as
  bool is_named = false;                ///< every cell is a category, numbers too
  std::vector<std::string> known = {};  ///< the categories there may be; empty: those that are met
};

/// Reads cells one by one and remembers what they were. Throws DataError that names file, row and column.
class CsvColumn {
 public:
  CsvColumn(std::string path, std::string name, CsvColumnOptions how);

  const std::string& name() const noexcept { return name_; }
  /// A cell of numbers or categories: the number in float32, the category's code, or
  /// `stands_for_missing`. All cells are numbers or all are categories.
  float feature(const CsvCell& cell);
  /// A cell that has to be a number; `stands_for_missing` where it is missing.
  float number(const CsvCell& cell);
  /// The code of what stands in the cell, whatever it is; -1 where it is missing.
  std::int64_t code(const CsvCell& cell);

  /// Whether missing values are counted and this is one, which it then counts.
  bool counts_as_missing(const CsvCell& cell);

  /// The codes' texts, by when they were met (`known`: in that order); at most kMostKept.
  const std::vector<std::string>& texts() const noexcept { return texts_; }
  /// Where the text of a code was met first; none of `known`.
  const CsvPlace& place_of(std::size_t code) const { return places_[code]; }
  bool is_category() const noexcept { return how_.is_named || !how_.known.empty() || first_text_; }
  bool has_too_many() const noexcept { return too_many_; }
  std::int64_t missing() const noexcept { return missing_; }
  const CsvPlace& first_missing() const noexcept { return first_missing_; }

  [[noreturn]] void refuse(const CsvPlace& at, std::string_view expected, std::string_view advice = "") const;

  static constexpr std::size_t kMostKept = 10'000;

 private:
  float finite(const CsvCell& cell, double number) const;
  [[noreturn]] void refuse_text(const CsvPlace& at, bool other_rows_have_numbers) const;

  std::string path_, name_;
  CsvColumnOptions how_;
  std::unordered_map<std::string, std::int64_t> codes_;
  std::vector<std::string> texts_;
  std::vector<CsvPlace> places_;
  bool too_many_ = false, has_numbers_ = false;
  CsvPlace first_text_, first_missing_;
  std::int64_t missing_ = 0;
};

/// `name` as a data set's name has it: what means something else there is written %XX.
std::string as_setting(std::string_view name);

}  // namespace dtrain
