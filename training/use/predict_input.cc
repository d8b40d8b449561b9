#include "training/use/predict_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/base/error.h"
#include "runtime/data/cache/data_cache.h"
#include "runtime/data/formats/idx.h"
#include "runtime/data/formats/npz.h"
#include "runtime/data/sources/npy_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/pixels.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// One field of the run and the file it is read from.
struct FieldFile {
  Field field;
  std::string path;
};

/// Samples of one field each from sources of their own, under the fields of the run.
class JoinedSource final : public Source {
 public:
  JoinedSource(std::vector<Field> fields, std::vector<std::shared_ptr<const Source>> sources)
      : fields_(std::move(fields)), sources_(std::move(sources)) {}
  std::string name() const override { return sources_.front()->name(); }
  std::int64_t size() const noexcept override { return sources_.front()->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    for (std::size_t i = 0; i < sources_.size(); ++i)
      sources_[i]->read(index, outputs.subspan(i, 1), generator);
  }

 private:
  std::vector<Field> fields_;
  std::vector<std::shared_ptr<const Source>> sources_;
};

/// Grey images of an IDX file.
class IdxImages final : public Source {
 public:
  IdxImages(std::string path, const Field& field, IdxArray images)
      : path_(std::move(path)), fields_{field}, images_(std::move(images)) {}
  std::string name() const override { return path_; }
  std::int64_t size() const noexcept override { return images_.dims[0]; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& /*unused*/) const override {
    const auto pixels = static_cast<std::size_t>(fields_.front().shape.product());
    write_pixels(images_.elements.read(static_cast<std::size_t>(index) * pixels, pixels).data(), outputs[0]);
  }

 private:
  std::string path_;
  std::vector<Field> fields_;
  IdxArray images_;
};

/// The images of labelled pictures.
class OnlyImages final : public Source {
 public:
  explicit OnlyImages(std::shared_ptr<const Source> pictures)
      : pictures_(std::move(pictures)), fields_{pictures_->fields().front()} {}
  std::string name() const override { return pictures_->name(); }
  std::int64_t size() const noexcept override { return pictures_->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    std::int64_t label = 0;
    const View both[] = {outputs[0], {&label, DType::i64, {}, {}}};
    pictures_->read(index, both, generator);
  }

 private:
  std::shared_ptr<const Source> pictures_;
  std::vector<Field> fields_;
};

[[noreturn]] void refuse(const FieldFile& file, const std::string& found) {
  throw DataError(file.path, -1,
                  fmt::format("{} for each sample, as the run was trained on", file.field.to_string()),
                  found);
}

std::vector<FieldFile> parse(const std::string& text, const SavedRun& run) {
  std::error_code ignored;
  if (text.find('=') == std::string::npos || fs::exists(text, ignored))
    return {{input_field(*run.task, run.fields), text}};
  std::vector<FieldFile> files;
  SourceSpec spec("--input", text);
  for (const auto& [name, path] : spec.take_rest()) {
    const Field* const field = find_field(run.fields, name);
    if (field == nullptr) {
      throw UsageError(fmt::format("--input {}: expected fields of the run's samples ({}), got {}", text,
                                   describe(run.fields), name));
    }
    files.push_back({*field, path});
  }
  return files;
}

std::shared_ptr<const Source> open_npy_file(const FieldFile& file) {
  const auto source = std::make_shared<const NpySource>(
      file.path, std::vector<NpyField>{open_npy_field(file.field.name, file.path)});
  const Field& found = source->fields().front();
  if (found.dtype != file.field.dtype || found.shape != file.field.shape) refuse(file, found.to_string());
  return source;
}

/// How the run's own table was read, where it was one.
struct Table {
  bool known = false;
  CsvReading how;
  bool has_delimiter = false;
  std::string path;
  std::vector<std::string> features, others;  ///< named ones; targets and label
};

Table table_of(const SavedRun& run) {
  constexpr std::string_view kPrefix = "csv:";
  const std::string dataset = run.options.has("dataset") ? run.options.text("dataset") : "";
  if (!dataset.starts_with(kPrefix)) return {};
  Table table;
  table.known = true;
  SourceSpec spec("csv", std::string_view(dataset).substr(kPrefix.size()));
  table.has_delimiter = spec.has("delimiter");
  table.how = take_csv_reading(spec);
  table.how.categories.clear();  // the run has noted what they are
  table.features = spec.take_list("features");
  table.others = spec.take_list("target");
  const auto label = spec.take_list("label");
  table.others.insert(table.others.end(), label.begin(), label.end());
  table.path =
      (fs::path(run.options.has("data-dir") ? run.options.text("data-dir") : "") / spec.file()).string();
  return table;
}

/// The columns of `path` to read, in the order of the run's: by the names that the run has noted; of a run
/// that did not note them yet, by those that its training file has; of one that was no table, all of them.
std::vector<std::string> columns_for(const FieldFile& file, const Table& table) {
  if (!file.field.columns.empty()) return file.field.columns;
  if (!table.features.empty()) return table.features;
  if (table.known) {
    if (!fs::exists(table.path)) {
      throw DataError(
          table.path, -1,
          fmt::format("the table that the run was trained on, whose columns tell those of {} apart "
                      "(an older version made the run, which did not note their names)",
                      file.path),
          "none; put it back there, or give a .npy file with the columns in its order");
    }
    return feature_columns(read_csv_header(table.path, table.how), {{}, table.others, {}}, table.path);
  }
  const std::vector<std::string> header = read_csv_header(file.path, table.how);
  if (looks_like_row(header)) {
    throw DataError(file.path, 0, "a first line that names the columns",
                    fmt::format("numbers ({}), which would be lost as a row", fmt::join(header, ", ")));
  }
  return feature_columns(header, {}, file.path);
}

std::shared_ptr<const Source> open_csv_file(const FieldFile& file, const SavedRun& run) {
  if (file.field.shape.rank() != 1 || file.field.dtype != DType::f32)
    refuse(file, "a table of numbers; use .npy");
  Table table = table_of(run);
  table.how.missing = file.field.fill.empty() ? CsvMissing::refuse : CsvMissing::mean;  // as the network can
  if (!table.has_delimiter) table.how.delimiter = find_delimiter(file.path);
  const CsvColumns columns{columns_for(file, table), {}, {}};
  if (static_cast<std::int64_t>(columns.features.size()) != file.field.shape[0])
    refuse(file, fmt::format("{} columns: {}", columns.features.size(), fmt::join(columns.features, ", ")));
  const auto rows = std::make_shared<const CsvTable>(file.path, columns, table.how);
  return CsvTable::source(rows, file.path, 0);
}

std::shared_ptr<const Source> open_idx_file(const FieldFile& file, Log& log) {
  const Dims& shape = file.field.shape;
  if (shape.rank() != 3 || shape[0] != 1 || file.field.dtype != DType::f32)
    refuse(file, "an IDX file, which has grayscale images; use .npy");
  DataCache no_cache({}, log);
  IdxExpectation expectation;
  expectation.item = {shape[1], shape[2]};
  expectation.purpose = "an IDX file of images (.npy and .csv files are recognized by their names)";
  return std::make_shared<IdxImages>(file.path, file.field, read_idx(file.path, expectation, no_cache));
}

bool is_pictures(const std::string& path) {
  std::string name = path;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return fs::is_directory(path) || std::ranges::any_of(std::array{".jpg", ".jpeg", ".png", ".webp", ".tar"},
                                                       [&](const char* end) { return name.ends_with(end); });
}

PredictionInput open_pictures(const FieldFile& file, const SavedRun& run) {
  const auto pictures =
      open_pictures_to_predict(file.path, run.options.has("dataset") ? run.options.text("dataset") : "");
  PredictionInput input{std::make_shared<const OnlyImages>(pictures.source), {}};
  const Field& found = input.source->fields().front();
  if (found.dtype != file.field.dtype || found.shape != file.field.shape) refuse(file, found.to_string());
  input.places = pictures.places;
  return input;
}

std::shared_ptr<const Source> open_file(const FieldFile& file, const SavedRun& run, Log& log) {
  if (file.path.ends_with(".npy") || npz_name(file.path)) return open_npy_file(file);
  if (file.path.ends_with(".csv") || file.path.ends_with(".csv.gz")) return open_csv_file(file, run);
  return open_idx_file(file, log);
}

}  // namespace

PredictionInput open_input(const std::string& text, const SavedRun& run, Log& log) {
  const std::vector<FieldFile> files = parse(text, run);
  if (files.size() == 1 && is_pictures(files.front().path)) return open_pictures(files.front(), run);
  std::vector<Field> fields;
  std::vector<std::shared_ptr<const Source>> sources;
  for (const FieldFile& file : files) {
    fields.push_back(file.field);
    sources.push_back(open_file(file, run, log));
    if (sources.back()->size() != sources.front()->size()) {
      throw DataError(file.path, -1, fmt::format("{} samples, as in the first file", sources.front()->size()),
                      std::to_string(sources.back()->size()));
    }
  }
  return {std::make_shared<JoinedSource>(std::move(fields), std::move(sources)), {}};
}

}  // namespace dtrain
