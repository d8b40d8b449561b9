// What one worker has measured of its node and device, and who of many is out of line: the table of `dtrain
// doctor` for a whole job. Pure.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "worker/doctor.h"

namespace dtrain {

/// What is measured, in the order of the table's columns.
enum class Metric { matmul, memory_copy, memory_free, disk_write, disk_free, gpu_all_reduce, link, clock };
inline constexpr std::size_t kMetrics = 8;

struct MetricSpec {
  std::string_view name;     ///< "disk write"; its key in JSON has _ for the space
  std::string_view heading;  ///< with the unit the table shows, "disk MB/s"
  double scale;              ///< from SI units (FLOP/s, bytes/s, bytes, seconds) to the table's
  std::string_view unit;     ///< the table's
  /// The least share of the median that is still in line; 0: not compared that way.
  double least_share;
  /// The greatest distance from the median in SI units that is still in line; 0: not compared that way.
  double most_away;
  /// Whether a node that is out of line is unfit. Other programs of a host use its memory, too: how fast that
  /// is shows in the table, and keeps nobody out.
  bool decides = true;
};
const MetricSpec& spec_of(Metric metric) noexcept;

/// Of one worker.
struct HealthReport {
  int rank = 0;
  std::string host, device;
  /// By Metric, in SI units; NaN: not measured by this worker, as what its node's first one measures.
  std::array<double, kMetrics> values;
  std::vector<Finding> bad;  ///< of `dtrain doctor`, those that are BAD

  HealthReport() { values.fill(std::nan("")); }
  double& operator[](Metric metric) { return values[static_cast<std::size_t>(metric)]; }
  double operator[](Metric metric) const { return values[static_cast<std::size_t>(metric)]; }
};

std::string to_json(const HealthReport& report);
/// Throws DataError for text that to_json() did not make.
HealthReport health_from_json(std::string_view text);

/// A value that is out of line among those of other workers.
struct Outlier {
  std::size_t row = 0;  ///< index of the report
  Metric metric{};
  double value = 0, median = 0;
};
/// Compared with the median of all that have measured it, where two or more have. Of two the slower is named
/// only for what concerns one node alone: which end of a link is slow cannot be told.
std::vector<Outlier> find_outliers(const std::vector<HealthReport>& reports);

/// "disk write 12 MB/s, the median is 410 MB/s"
std::string text_of(const Outlier& outlier);
/// "rank 2 (host c): disk write 12 MB/s, the median is 410 MB/s"
std::string text_of(const Outlier& outlier, const std::vector<HealthReport>& reports);

/// A row a worker, outliers marked with *, in blocks of as many columns as `width` characters hold (0: all);
/// below it each outlier and each bad finding with its fix.
std::string health_table(const std::vector<HealthReport>& reports, std::size_t width);
/// The same as one JSON object.
std::string health_json(const std::vector<HealthReport>& reports, std::string_view version);

}  // namespace dtrain
