// Medians, marks and columns.
#include "worker/health/health_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Json = nlohmann::json;

// Half a link's bandwidth, or a third of a disk's, is out of line. GPUs of one kind differ by less than a
// third unless something is wrong with them; CPUs by more, where other programs, or a core's other thread,
// use them for a while; and what several processes do together waits for the last of them.
constexpr double kShareOfCpu = 0.5, kShareOfEmulatedGpus = 0.25;
constexpr std::array<MetricSpec, kMetrics> kSpecs = {{
    {"matmul", "matmul GFLOP/s", 1e-9, "GFLOP/s", 1 / 1.3, 0},
    {"memory copy", "memory GB/s", 1e-9, "GB/s", 1 / 2.0, 0, false},
    {"memory free", "free GiB", 1.0 / (1024.0 * 1024.0 * 1024.0), "GiB", 1 / 4.0, 0},
    {"disk write", "disk MB/s", 1e-6, "MB/s", 1 / 3.0, 0},
    {"disk free", "disk GiB", 1.0 / (1024.0 * 1024.0 * 1024.0), "GiB", 0, 0},
    {"GPU all_reduce", "GPU all_reduce GB/s", 1e-9, "GB/s", 1 / 1.5, 0},
    {"link", "link MB/s", 1e-6, "MB/s", 1 / 1.5, 0},
    {"clock", "clock s", 1, "s", 0, 1},
}};

std::string key_of(Metric metric) {
  std::string key(spec_of(metric).name);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

std::vector<Metric> all_metrics() {
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < kMetrics; ++i) metrics.push_back(static_cast<Metric>(i));
  return metrics;
}

std::string shown(Metric metric, double value) {
  const double scaled = value * spec_of(metric).scale;
  if (metric == Metric::clock) return fmt::format("{:+.3f}", scaled);
  return std::abs(scaled) >= 100 ? fmt::format("{:.0f}", scaled) : fmt::format("{:.3g}", scaled);
}

// Of an even number the mean of the two in the middle.
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool computes_on_cpu(const HealthReport& report) {
  return report.device.starts_with("cpu") || report.device.find("emulated") != std::string::npos;
}

// Of the median, where processors do the work of what is measured.
double share_on_cpu(Metric metric) {
  if (metric == Metric::matmul) return kShareOfCpu;
  return metric == Metric::gpu_all_reduce ? kShareOfEmulatedGpus : spec_of(metric).least_share;
}

std::vector<double> values_of(const std::vector<HealthReport>& reports, Metric metric) {
  std::vector<double> values;
  for (const HealthReport& report : reports) {
    if (!std::isnan(report[metric])) values.push_back(report[metric]);
  }
  return values;
}

Json finding_json(const Finding& finding) {
  return {{"subject", finding.subject}, {"text", finding.text}, {"fix", finding.fix}};
}

Json report_json(const HealthReport& report) {
  Json json = {{"rank", report.rank}, {"host", report.host}, {"device", report.device}};
  for (const Metric metric : all_metrics()) {
    if (!std::isnan(report[metric])) json[key_of(metric)] = report[metric];
  }
  json["bad"] = Json::array();
  for (const Finding& finding : report.bad) json["bad"].push_back(finding_json(finding));
  return json;
}

std::string who(const HealthReport& report) {
  return fmt::format("rank {} (host {})", report.rank, report.host);
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// A column: its heading, then a cell a row.
using Column = std::vector<std::string>;

std::size_t width_of(const Column& column) {
  std::size_t width = 0;
  for (const std::string& cell : column) width = std::max(width, cell.size());
  return width;
}

// Columns that begin each block: which worker a row is.
std::vector<Column> names(const std::vector<HealthReport>& reports) {
  std::vector<Column> columns = {{"rank"}, {"host"}};
  for (const HealthReport& report : reports) {
    columns[0].push_back(std::to_string(report.rank));
    columns[1].push_back(report.host);
  }
  return columns;
}

std::vector<Column> measured(const std::vector<HealthReport>& reports, const std::vector<Outlier>& outliers) {
  std::vector<Column> columns;
  for (const Metric metric : all_metrics()) {
    if (values_of(reports, metric).empty()) continue;
    Column column = {std::string(spec_of(metric).heading)};
    for (std::size_t row = 0; row < reports.size(); ++row) {
      const bool marked = std::any_of(outliers.begin(), outliers.end(), [&](const Outlier& outlier) {
        return outlier.row == row && outlier.metric == metric;
      });
      const double value = reports[row][metric];
      column.push_back(std::isnan(value) ? "-" : shown(metric, value) + (marked ? "*" : ""));
    }
    columns.push_back(std::move(column));
  }
  Column checks = {"checks"}, devices = {"device"};
  for (const HealthReport& report : reports) {
    checks.push_back(report.bad.empty() ? "ok" : fmt::format("{} BAD", report.bad.size()));
    devices.push_back(report.device);
  }
  columns.push_back(std::move(checks));
  columns.push_back(std::move(devices));
  return columns;
}

std::string block(const std::vector<Column>& columns) {
  std::string text;
  for (std::size_t row = 0; row < columns.front().size(); ++row) {
    std::string line;
    for (const Column& column : columns)
      line += (line.empty() ? "" : "  ") + padded(column[row], width_of(column));
    text += line + "\n";
  }
  return text;
}

}  // namespace

const MetricSpec& spec_of(Metric metric) noexcept { return kSpecs[static_cast<std::size_t>(metric)]; }

std::string to_json(const HealthReport& report) { return report_json(report).dump(); }

HealthReport health_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  try {
    HealthReport report;
    report.rank = json.at("rank").get<int>();
    report.host = json.at("host").get<std::string>();
    report.device = json.at("device").get<std::string>();
    for (const Metric metric : all_metrics()) {
      if (json.contains(key_of(metric))) report[metric] = json.at(key_of(metric)).get<double>();
    }
    for (const Json& finding : json.at("bad"))
      report.bad.push_back({finding.at("subject").get<std::string>(), Verdict::bad,
                            finding.at("text").get<std::string>(), finding.at("fix").get<std::string>()});
    return report;
  } catch (const Json::exception& error) {
    throw DataError("a worker's health report", -1, "what dtrain doctor writes",
                    fmt::format("'{}' ({})", text.substr(0, 200), error.what()));
  }
}

std::vector<Outlier> find_outliers(const std::vector<HealthReport>& reports) {
  std::vector<Outlier> outliers;
  for (const Metric metric : all_metrics()) {
    const std::vector<double> values = values_of(reports, metric);
    const std::size_t least = metric == Metric::link || metric == Metric::clock ? 3 : 2;
    if (values.size() < least) continue;
    const MetricSpec& spec = spec_of(metric);
    const double median = median_of(values);
    for (std::size_t row = 0; row < reports.size(); ++row) {
      const double value = reports[row][metric];
      const double share = computes_on_cpu(reports[row]) ? share_on_cpu(metric) : spec.least_share;
      const bool low = share > 0 && value < share * median;
      const bool away = spec.most_away > 0 && std::abs(value - median) > spec.most_away;
      if (low || away) outliers.push_back({row, metric, value, median});
    }
  }
  return outliers;
}

std::string text_of(const Outlier& outlier) {
  const MetricSpec& spec = spec_of(outlier.metric);
  return fmt::format("{} {} {}, the median is {} {}", spec.name, shown(outlier.metric, outlier.value),
                     spec.unit, shown(outlier.metric, outlier.median), spec.unit);
}

std::string text_of(const Outlier& outlier, const std::vector<HealthReport>& reports) {
  return who(reports[outlier.row]) + ": " + text_of(outlier);
}

std::string health_table(const std::vector<HealthReport>& reports, std::size_t width) {
  const std::vector<Outlier> outliers = find_outliers(reports);
  const std::vector<Column> first = names(reports), rest = measured(reports, outliers);
  std::string text;
  std::vector<Column> columns = first;
  const auto total = [&] {
    std::size_t sum = 0;
    for (const Column& column : columns) sum += width_of(column) + 2;
    return sum - 2;
  };
  for (const Column& column : rest) {
    columns.push_back(column);
    if (width == 0 || total() <= width || columns.size() == first.size() + 1) continue;
    columns.pop_back();
    text += block(columns) + "\n";
    columns = first;
    columns.push_back(column);
  }
  text += block(columns);
  for (const Outlier& outlier : outliers) text += "* " + text_of(outlier, reports) + "\n";
  std::set<std::string> said;  // what all workers of a host find is said once
  for (const HealthReport& report : reports) {
    for (const Finding& finding : report.bad) {
      if (!said.insert(report.host + "\n" + finding.subject + "\n" + finding.text).second) continue;
      text += fmt::format("BAD {}: {}: {}\n", who(report), finding.subject, finding.text);
      if (!finding.fix.empty()) text += fmt::format("    -> {}\n", finding.fix);
    }
  }
  return text;
}

std::string health_json(const std::vector<HealthReport>& reports, std::string_view version) {
  Json workers = Json::array(), outliers = Json::array();
  for (const HealthReport& report : reports) workers.push_back(report_json(report));
  for (const Outlier& outlier : find_outliers(reports)) {
    outliers.push_back({{"rank", reports[outlier.row].rank},
                        {"host", reports[outlier.row].host},
                        {"metric", key_of(outlier.metric)},
                        {"value", outlier.value},
                        {"median", outlier.median}});
  }
  return Json{{"version", version}, {"workers", workers}, {"outliers", outliers}}.dump(2) + "\n";
}

}  // namespace dtrain
