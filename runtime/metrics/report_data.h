// What the report shows, read from the files of a run. Internal to runtime/metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/metrics/run_directory.h"

namespace dtrain {

/// One point of a curve.
struct ReportPoint {
  double x = 0;
  double y = 0;
};

/// A line of a table: "lr", "0.2", "command line".
struct ReportRow {
  std::string name;
  std::string value;
  std::string source;  ///< empty when the file does not say
};

struct ReportData {
  std::vector<ReportPoint> train_loss;  ///< x: step
  std::vector<ReportPoint> eval_loss;   ///< x: the last step before the evaluation
  std::vector<ReportPoint> accuracy;
  std::vector<ReportRow> config;
  std::vector<ReportRow> summary;
  std::int64_t unreadable_lines = 0;  ///< of metrics.jsonl
};

/// Adds the curves of metrics.jsonl text. Points that are not numbers (null: NaN) are left out.
void add_metrics(std::string_view jsonl, ReportData& data);

/// Rows for JSON text: nested names joined by dots; {"value": v, "source": s} is one row with a source.
/// `path` is for messages. Throws DataError for text that is not JSON.
std::vector<ReportRow> table_of(const std::string& json_text, const std::string& path);

/// Reads all of `run`. Throws as render_report.
ReportData read_report_data(const RunDirectory& run);

}  // namespace dtrain
