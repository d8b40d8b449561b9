#include "runtime/data/sources/csv_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/formats/csv_cell.h"
#include "runtime/data/formats/csv_column.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/sources/class_labels.h"

namespace dtrain {
namespace {

using Names = std::vector<std::string>;

// Categories that are found, and those that are asked for. Texts that are nearly all different, as names
// are, tell nothing about other rows.
constexpr std::size_t kMostFound = 100, kMostAsked = 1000, kFewTexts = 10;
constexpr std::size_t kMostShown = 3, kMostCounted = 8;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// The file's text, plain or gzip, as the CSV reader takes it.
struct CsvFile {
  CsvFile(const std::string& path, char delimiter)
      : content(path, "a CSV file"),
        reader(
            path, [this](std::span<std::uint8_t> out) { return content.read(out); }, delimiter) {}

  ContentReader content;
  CsvReader reader;
};

bool has(const Names& names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

std::size_t place_of(const std::string& column, const Names& header, const std::string& path) {
  check_csv_column(column, header, path);
  return static_cast<std::size_t>(std::ranges::find(header, column) - header.begin());
}

/// A feature taken apart: COLUMN=TEXT where the header has a COLUMN and not the whole.
struct Indicator {
  std::string column, text;
};

std::optional<Indicator> indicator_in(const std::string& feature, const Names& header) {
  if (has(header, feature)) return std::nullopt;
  for (std::size_t at = feature.find('='); at != std::string::npos; at = feature.find('=', at + 1))
    if (has(header, feature.substr(0, at))) return Indicator{feature.substr(0, at), feature.substr(at + 1)};
  return std::nullopt;
}

/// By number where both are numbers, numbers first.
bool comes_before(const std::string& a, const std::string& b) {
  const auto x = number_in(a), y = number_in(b);
  if (x && y && *x != *y) return *x < *y;
  if (x.has_value() != y.has_value()) return x.has_value();
  return a < b;
}

/// Categories in their order, and where each code goes there.
struct Sorted {
  Names names;
  std::vector<std::int64_t> places;

  /// Of distinct texts; as they stand where `sorts` is false.
  Sorted(const Names& texts, bool sorts) : names(texts), places(texts.size()) {
    if (sorts) std::ranges::sort(names, comes_before);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto found = std::ranges::find(names, texts[i]);
      places[i] = found - names.begin();
    }
  }
};

}  // namespace

/// Reads one table, row by row, and settles at the end what was in it.
class CsvTableReader {
 public:
  CsvTableReader(CsvTable& table, const std::string& path, const CsvReading& how)
      : table_(table), path_(path), how_(how) {}

  void read();

 private:
  struct Placed {
    CsvColumn column;
    std::size_t place;
  };

  void find_columns(const Names& header);
  Placed placed(const std::string& name, const Names& header, Names known = {}) const;
  void add(const CsvRecord& record);
  void settle();
  void check_categories() const;
  void check_missing() const;
  void check_missing_texts() const;
  void settle_features();
  void settle_labels();
  void name_classes();
  bool repeats(const CsvColumn& column) const;
  void note_missing();
  std::string counted_missing() const { return counted_missing({&features_, &targets_, &label_}); }
  std::string counted_missing(std::initializer_list<const std::vector<Placed>*> groups) const;
  std::string advice_on_missing() const;
  template <class F>
  void for_columns(const F& each) const {
    for (const auto* group : {&features_, &targets_, &label_})
      for (const Placed& placed : *group) each(placed.column);
  }

  CsvTable& table_;
  const std::string& path_;
  const CsvReading& how_;
  std::vector<Placed> features_, targets_, label_;  // of the label at most one
  std::int64_t read_ = 0, missing_ = 0;             // rows, also those that were left out; cells
};

CsvTableReader::Placed CsvTableReader::placed(const std::string& name, const Names& header,
                                              Names known) const {
  return {CsvColumn(path_, name,
                    {.numbers = how_.numbers,
                     .finds = how_.finds_categories,
                     .counts_missing = how_.missing != CsvMissing::refuse,
                     .stands_for_missing = how_.missing == CsvMissing::mean ? kNaN : 0,
                     .is_named = has(how_.categories, name),
                     .known = std::move(known)}),
          place_of(name, header, path_)};
}

void CsvTableReader::find_columns(const Names& header) {
  const CsvColumns& columns = table_.columns_;
  for (std::size_t i = 0; i < columns.features.size();) {
    const auto indicator = indicator_in(columns.features[i], header);
    if (!indicator) {
      features_.push_back(placed(columns.features[i++], header));
      continue;
    }
    Names known;
    for (; i < columns.features.size(); ++i) {
      const auto next = indicator_in(columns.features[i], header);
      if (!next || next->column != indicator->column) break;
      known.push_back(next->text);
    }
    features_.push_back(placed(indicator->column, header, std::move(known)));
  }
  for (const std::string& name : columns.targets) targets_.push_back(placed(name, header));
  if (!columns.label.empty()) label_.push_back(placed(columns.label, header, columns.classes));
}

void CsvTableReader::read() {
  CsvFile file(path_, how_.delimiter);
  CsvRecord record;
  bool more = file.reader.next(record);
  if (!more) throw DataError(path_, 0, "a line with the columns' names", "an empty file");
  const Names header = csv_header(record, how_);
  find_columns(header);
  if (how_.has_header) more = file.reader.next(record);
  for (; more; more = file.reader.next(record)) {
    ++read_;
    if (record.size() != header.size()) {
      throw DataError(
          path_, record.offset(0),
          fmt::format("{} fields in row {} (line {}), as in the header", header.size(), read_, record.line()),
          std::to_string(record.size()));
    }
    add(record);
  }
  if (read_ == 0) throw DataError(path_, -1, "at least one row below the header", "none");
  settle();
}

void CsvTableReader::add(const CsvRecord& record) {
  const auto cell = [&](const Placed& placed) {
    return CsvCell{record[placed.place], read_, record.line(), record.offset(placed.place)};
  };
  if (how_.missing == CsvMissing::skip || how_.missing == CsvMissing::mean) {
    // Nothing that is only in a row that is left out is a category.
    bool lacks = false;
    for (auto* group : {&features_, &targets_, &label_}) {
      if (group == &features_ && how_.missing == CsvMissing::mean) continue;
      for (Placed& placed : *group) lacks = placed.column.counts_as_missing(cell(placed)) || lacks;
    }
    if (lacks) return;
  }
  for (Placed& placed : features_) table_.x_.push_back(placed.column.feature(cell(placed)));
  for (Placed& placed : targets_) table_.y_.push_back(placed.column.number(cell(placed)));
  for (Placed& placed : label_) table_.labels_.push_back(placed.column.code(cell(placed)));
  ++table_.rows_;
  if (how_.missing != CsvMissing::report) return;
  std::int64_t missing = 0;
  for_columns([&](const CsvColumn& column) { missing += column.missing(); });
  if (missing == missing_) return;
  missing_ = missing;
  table_.x_.resize(table_.x_.size() - features_.size());
  table_.y_.resize(table_.y_.size() - targets_.size());
  table_.labels_.resize(table_.labels_.size() - label_.size());
  --table_.rows_;
}

void CsvTableReader::settle() {
  check_categories();
  if (how_.missing == CsvMissing::report) check_missing();
  if (how_.missing == CsvMissing::mean) check_missing_texts();
  if (table_.rows_ == 0) {
    throw DataError(path_, -1, "at least one row with a value in each column that is used",
                    fmt::format("none in {} rows, values are missing: {}; {}", read_, counted_missing(),
                                advice_on_missing()));
  }
  settle_features();
  settle_labels();
  note_missing();
}

void CsvTableReader::note_missing() {
  const bool fills = how_.missing == CsvMissing::mean;
  std::string note;
  if (table_.rows_ < read_) {
    note = fmt::format("{} of {} rows left out, where values are missing: {}", read_ - table_.rows_, read_,
                       fills ? counted_missing({&targets_, &label_}) : counted_missing());
  }
  if (const std::string filled = fills ? counted_missing({&features_}) : ""; !filled.empty()) {
    note +=
        fmt::format("{}missing values that become the column's mean: {}", note.empty() ? "" : "; ", filled);
  }
  if (note.empty()) return;
  table_.notes_ = note + (table_.notes_.empty() ? "" : "; ") + table_.notes_;
}

bool CsvTableReader::repeats(const CsvColumn& column) const {
  const std::size_t different = column.texts().size();
  const auto rows = static_cast<std::size_t>(read_ - column.missing());
  return different <= kFewTexts || 2 * different <= rows;
}

/// All columns at once, so that one look is enough.
void CsvTableReader::check_categories() const {
  if (!how_.finds_categories) return;  // another table had them, whose rows these few are read by
  Names found, names;
  for (const Placed& placed : features_) {
    const CsvColumn& column = placed.column;
    const std::size_t different = column.texts().size();
    const bool asked = has(how_.categories, column.name());
    if (!column.is_category() || different <= (asked ? kMostAsked : kMostFound)) {
      if (asked || repeats(column)) continue;
    }
    Names some(column.texts().begin(),
               column.texts().begin() + static_cast<std::ptrdiff_t>(std::min(different, kMostShown)));
    for (std::string& text : some) text = quoted_cell(text);
    found.push_back(fmt::format("{} ({}{} in {} rows: {}, …)", printable(column.name()),
                                column.has_too_many() ? "more than " : "", different, read_,
                                fmt::join(some, ", ")));
    names.push_back(as_setting(column.name()));
  }
  if (found.empty()) return;
  throw DataError(
      path_, -1, fmt::format("columns of numbers, or of at most {} different texts that repeat", kMostFound),
      fmt::format(
          "{}; leave {} out with without={}{}", fmt::join(found, ", "), names.size() == 1 ? "it" : "them",
          fmt::join(names, "+"),
          how_.missing == CsvMissing::report && missing_ > 0
              ? fmt::format("; values are missing, too: {}; {}", counted_missing(), advice_on_missing())
              : ""));
}

/// "a 3, b 1"; empty where no value is missing.
std::string CsvTableReader::counted_missing(std::initializer_list<const std::vector<Placed>*> groups) const {
  Names counts;
  for (const auto* group : groups) {
    for (const auto& [column, place] : *group) {
      if (column.missing() > 0)
        counts.push_back(fmt::format("{} {}", printable(column.name()), column.missing()));
    }
  }
  const std::size_t shown = std::min(counts.size(), kMostCounted);
  return fmt::format("{}{}",
                     fmt::join(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < counts.size() ? fmt::format(" and {} more columns", counts.size() - shown) : "");
}

/// Columns that lack most of their values leave few rows, or none.
std::string CsvTableReader::advice_on_missing() const {
  Names empty;
  for (const Placed& placed : features_)
    if (2 * placed.column.missing() > read_) empty.push_back(as_setting(placed.column.name()));
  const bool numbers_only = std::ranges::none_of(
      features_, [](const Placed& each) { return each.column.is_category() && each.column.missing() > 0; });
  return fmt::format(
      "{}{}without={} leaves out columns{}",
      how_.missing == CsvMissing::report ? "missing=skip leaves such rows out, " : "",
      how_.missing == CsvMissing::report && numbers_only && !counted_missing({&features_}).empty()
          ? "missing=mean takes the column's mean instead, "
          : "",
      empty.empty() ? "A+B" : fmt::format("{}", fmt::join(empty, "+")),
      empty.empty() ? "" : " that lack most of theirs");
}

void CsvTableReader::check_missing() const {
  const CsvColumn* first = nullptr;
  for_columns([&](const CsvColumn& column) {
    if (column.missing() > 0 && (first == nullptr || column.first_missing().row < first->first_missing().row))
      first = &column;
  });
  if (first == nullptr) return;
  const bool of_label = !label_.empty() && first == &label_.front().column;
  first->refuse(first->first_missing(),
                of_label               ? "a class"
                : first->is_category() ? "a value"
                                       : "a number",
                fmt::format("values are missing in {} of {} rows ({}); {}", read_ - table_.rows_, read_,
                            counted_missing(), advice_on_missing()));
}

/// Of texts there is no mean.
void CsvTableReader::check_missing_texts() const {
  Names lacking;
  const CsvColumn* first = nullptr;
  for (const Placed& placed : features_) {
    const CsvColumn& column = placed.column;
    if (!column.is_category() || column.missing() == 0) continue;
    if (first == nullptr) first = &column;
    lacking.push_back(as_setting(column.name()));
  }
  if (first == nullptr) return;
  first->refuse(
      first->first_missing(), "a text",
      fmt::format("missing=mean is for columns of numbers: without={} leaves {} out, missing=skip the "
                  "rows instead",
                  fmt::join(lacking, "+"), lacking.size() == 1 ? "this column" : "these columns"));
}

/// Makes columns of 0 and 1 of each category, where there are any.
void CsvTableReader::settle_features() {
  Names names, notes;
  std::vector<std::optional<Sorted>> sorted;
  for (const Placed& placed : features_) {
    const CsvColumn& column = placed.column;
    sorted.emplace_back();
    if (!column.is_category()) {
      names.push_back(column.name());
      continue;
    }
    sorted.back().emplace(column.texts(), how_.finds_categories);
    for (const std::string& text : sorted.back()->names)
      names.push_back(fmt::format("{}={}", column.name(), text));
    notes.push_back(fmt::format("{} ({})", printable(column.name()), column.texts().size()));
  }
  table_.columns_.features = std::move(names);
  if (notes.empty()) return;
  if (how_.finds_categories) table_.notes_ = fmt::format("categories: {}", fmt::join(notes, ", "));
  std::vector<float> x;
  x.reserve(static_cast<std::size_t>(table_.rows_) * table_.columns_.features.size());
  for (std::size_t at = 0; at < table_.x_.size(); ++at) {
    const auto& categories = sorted[at % sorted.size()];
    if (!categories) {
      x.push_back(table_.x_[at]);
      continue;
    }
    const auto code = static_cast<std::size_t>(table_.x_[at]);
    const std::size_t begin = x.size();
    x.resize(begin + categories->names.size(), 0);
    x[begin + static_cast<std::size_t>(categories->places[code])] = 1;
  }
  table_.x_ = std::move(x);
}

void CsvTableReader::settle_labels() {
  table_.classes_ = how_.classes;
  if (label_.empty()) return;
  const CsvColumn& column = label_.front().column;
  const Names& texts = column.texts();
  if (!table_.columns_.classes.empty()) {  // codes are classes
    table_.classes_ = std::max(table_.classes_, static_cast<std::int64_t>(texts.size()));
    return;
  }
  if (has(how_.categories, column.name())) return name_classes();
  const std::int64_t most =
      how_.classes > 0 ? how_.classes - 1 : std::numeric_limits<std::int64_t>::max() - 1;
  std::vector<std::int64_t> numbers;
  std::optional<std::size_t> bad, text;  // the first that is no class, and the first that is no number
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto number = integer_in(texts[i], how_.numbers);
    if (!bad && (!number || *number < 0 || *number > most)) bad = i;
    if (!text && !number_in(texts[i], how_.numbers)) text = i;
    numbers.push_back(number.value_or(-1));
  }
  if (!bad) {
    for (std::int64_t& label : table_.labels_) label = numbers[static_cast<std::size_t>(label)];
    if (how_.classes == 0)
      table_.classes_ = count_classes(
          table_.labels_, path_,
          how_.finds_categories
              ? fmt::format("say categories={} to make a class of each", as_setting(column.name()))
              : "");
    return;
  }
  const bool all_texts = std::ranges::none_of(
      texts, [&](const std::string& each) { return number_in(each, how_.numbers).has_value(); });
  const bool may_be_named = how_.finds_categories && (all_texts || (!text && how_.classes == 0));
  if (may_be_named) return name_classes();
  const std::string expected = how_.classes > 0 ? fmt::format("a class from 0 to {}", how_.classes - 1)
                                                : std::string("a class, an integer from 0 on,");
  if (!how_.finds_categories || how_.classes > 0 || !text) column.refuse(column.place_of(*bad), expected);
  column.refuse(column.place_of(*text), expected,
                fmt::format("other rows have numbers there: correct it, or say categories={} to make a class "
                            "of each",
                            as_setting(column.name())));
}

void CsvTableReader::name_classes() {
  const CsvColumn& column = label_.front().column;
  const bool numbers = number_in(column.texts().front(), how_.numbers).has_value();
  const auto different = static_cast<std::int64_t>(column.texts().size());
  if (column.has_too_many() || !repeats(column)) {
    throw DataError(
        path_, -1, fmt::format("labels that repeat, in column {}", printable(column.name())),
        fmt::format(
            "{} different ones in {} rows ({}, …){}", different, read_, quoted_cell(column.texts().front()),
            numbers ? fmt::format("; numbers are learned with target={}", as_setting(column.name())) : ""));
  }
  if (how_.classes > 0 && different > how_.classes) {
    throw DataError(path_, -1,
                    fmt::format("at most {} different labels in column {}, by classes={}", how_.classes,
                                printable(column.name()), how_.classes),
                    std::to_string(different));
  }
  const Sorted sorted(column.texts(), true);
  for (std::int64_t& label : table_.labels_) label = sorted.places[static_cast<std::size_t>(label)];
  table_.columns_.classes = sorted.names;
  table_.classes_ = std::max(how_.classes, different);
}

CsvTable::CsvTable(const std::string& path, const CsvColumns& columns, const CsvReading& how)
    : columns_(columns), path_(path) {
  CsvTableReader(*this, path, how).read();
}

}  // namespace dtrain
