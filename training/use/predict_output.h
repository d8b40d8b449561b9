// Predictions as files: NumPy arrays of what the network gave, or tables for people and spreadsheets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/device/dims.h"
#include "training/task.h"

namespace dtrain {

/// Takes the outputs batch by batch, in order.
class PredictionWriter {
 public:
  virtual ~PredictionWriter() = default;
  /// `values`: row-major, shape [B, …]. Throws UsageError for outputs that the format cannot hold,
  /// SystemError.
  virtual void write(const std::vector<float>& values, const Dims& shape) = 0;
  /// After the last. Throws as OutputFile::commit.
  virtual void finish() = 0;
};

struct PredictionFormat {
  std::string file;  ///< ends in .npy or .csv; empty: a table on standard output
  bool overwrite = false;
  OutputKind kind = OutputKind::values;
  std::vector<std::string> names;         ///< of the predicted numbers, for a table; empty: y, or y0, y1, …
  std::vector<std::string> classes = {};  ///< their names, for a table of a classifier; empty: numbers
  std::vector<std::string> places =
      {};                    ///< of the samples, for a table's first column; empty: no such column
  std::int64_t samples = 0;  ///< that will be written
};

/// Throws UsageError for a file of another name, or one that is there.
///
///   .npy  float32 [samples, …], the network's first output as it is: logits of a classifier
///   .csv  a header and a row a sample: class,p0,p1,… (the likeliest class, then the probability of each;
///   with
///         names class,cat,dog,…), or the predicted numbers; with places in front of it sample,…; only for
///         outputs [samples] or [samples, numbers]
std::unique_ptr<PredictionWriter> make_prediction_writer(const PredictionFormat& format);

}  // namespace dtrain
