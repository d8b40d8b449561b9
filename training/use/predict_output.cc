#include "training/use/predict_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "training/use/output_file.h"

namespace dtrain {
namespace {

constexpr std::size_t kNpyAlignment = 64;

/// The header of a .npy file, version 1.0, of float32 [samples, …shape behind the first].
std::string npy_header(std::int64_t samples, const Dims& shape) {
  std::string extents = fmt::format("{},", samples);
  for (int i = 1; i < shape.rank(); ++i) extents += fmt::format(" {},", shape[i]);
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", extents);
  constexpr std::size_t kPreamble = 10;
  text += std::string((kNpyAlignment - (kPreamble + text.size() + 1) % kNpyAlignment) % kNpyAlignment, ' ') +
          '\n';
  std::string header = "\x93NUMPY";
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

class NpyWriter final : public PredictionWriter {
 public:
  explicit NpyWriter(const PredictionFormat& format)
      : file_(format.file, format.overwrite), samples_(format.samples) {}
  void write(const std::vector<float>& values, const Dims& shape) override {
    if (!begun_) file_.write(npy_header(samples_, shape));
    begun_ = true;
    file_.write({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  void finish() override { file_.commit(); }

 private:
  OutputFile file_;
  std::int64_t samples_;
  bool begun_ = false;
};

/// A cell of a table, in quotes where it needs them (RFC 4180).
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// One row of class and probabilities: softmax in double, from the largest logit down.
std::string class_row(std::span<const float> logits, const std::vector<std::string>& names) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(double{logit} - *largest));
  const auto number = static_cast<std::size_t>(largest - logits.begin());
  std::string row = names.size() == logits.size() ? cell(names[number]) : std::to_string(number);
  for (const double share : shares) row += fmt::format(",{}", static_cast<float>(share / sum));
  return row + "\n";
}

std::string number_row(std::span<const float> numbers) {
  std::string row;
  for (const float number : numbers) row += fmt::format("{}{}", row.empty() ? "" : ",", number);
  return row + "\n";
}

class CsvWriter final : public PredictionWriter {
 public:
  explicit CsvWriter(const PredictionFormat& format) : format_(format) {
    if (!format.file.empty()) file_.emplace(format.file, format.overwrite);
  }
  void write(const std::vector<float>& values, const Dims& shape) override {
    if (shape.rank() > 2) {
      throw UsageError(
          fmt::format("{}: expected outputs [samples, numbers] for a table, got {}; write them "
                      "with --output FILE.npy",
                      format_.file.empty() ? "standard output" : format_.file, shape.to_string()));
    }
    const auto width = static_cast<std::size_t>(shape.rank() == 2 ? shape[1] : 1);
    std::string text = begun_ ? "" : header(width);
    begun_ = true;
    for (std::size_t at = 0; at + width <= values.size() && width > 0; at += width) {
      const auto row = std::span(values).subspan(at, width);
      if (!format_.places.empty()) text += cell(format_.places[next_++]) + ",";
      text += format_.kind == OutputKind::logits ? class_row(row, format_.classes) : number_row(row);
    }
    file_ ? file_->write(text) : write_all(STDOUT_FILENO, std::string_view(text), "standard output");
  }
  void finish() override {
    if (file_) file_->commit();
  }

 private:
  std::string header(std::size_t width) const {
    const bool classes = format_.kind == OutputKind::logits;
    std::string line = format_.places.empty() ? "" : "sample";
    if (classes) line += line.empty() ? "class" : ",class";
    for (std::size_t i = 0; i < width; ++i) {
      std::string name = classes ? fmt::format("p{}", i) : width == 1 ? "y" : fmt::format("y{}", i);
      const std::vector<std::string>& names = classes ? format_.classes : format_.names;
      if (names.size() == width) name = cell(names[i]);
      line += (line.empty() ? "" : ",") + name;
    }
    return line + "\n";
  }

  PredictionFormat format_;
  std::optional<OutputFile> file_;
  bool begun_ = false;
  std::size_t next_ = 0;  ///< sample
};

}  // namespace

std::unique_ptr<PredictionWriter> make_prediction_writer(const PredictionFormat& format) {
  if (format.file.ends_with(".npy")) return std::make_unique<NpyWriter>(format);
  if (format.file.empty() || format.file.ends_with(".csv")) return std::make_unique<CsvWriter>(format);
  throw UsageError(
      fmt::format("--output {}: expected a name that ends in .npy or .csv, got another", format.file));
}

}  // namespace dtrain
