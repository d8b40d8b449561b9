#include "runtime/metrics/report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/metrics/report/thin.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// As many points as the width of a picture has pixels; fewer of each run where there are many.
constexpr std::size_t kMostPoints = 800, kFewestPoints = 100, kPointsOfAll = 8000;
constexpr std::size_t kMostEpochRows = 200;
constexpr int kAllDigits = 17;

/// With so many digits a picture shows no difference.
ordered_json rounded(double value, int digits = 6) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

ordered_json rounded(const std::optional<double>& value, int digits = 6) {
  return value ? rounded(*value, digits) : ordered_json();
}

/// The last number and the first of the largest: what tables say, whatever is left of the curve's points.
void add_ends(const Curve& curve, ordered_json& json) {
  std::optional<double> last;
  const CurvePoint* most = nullptr;
  for (const CurvePoint& point : curve) {
    if (std::isnan(point.value)) continue;
    last = point.value;
    if (most == nullptr || point.value > most->value) most = &point;
  }
  json["last"] = rounded(last, kAllDigits);
  if (most != nullptr) json["most"] = {{"x", most->step}, {"y", rounded(most->value, kAllDigits)}};
}

ordered_json curve_json(const Curve& curve, std::size_t most) {
  if (curve.empty()) return nullptr;
  const bool thinned = curve.size() > most;
  ordered_json json = {
      {"x", ordered_json::array()}, {"t", ordered_json::array()}, {"y", ordered_json::array()}};
  if (thinned) json["low"] = json["high"] = ordered_json::array();
  for (const ThinPoint& point : thin_out(curve, most)) {
    json["x"].push_back(static_cast<std::int64_t>(point.step));
    json["t"].push_back(rounded(point.seconds, 8));
    json["y"].push_back(rounded(point.mean));
    if (!thinned) continue;
    json["low"].push_back(rounded(point.low));
    json["high"].push_back(rounded(point.high));
  }
  add_ends(curve, json);
  return json;
}

ordered_json curves_json(const RunMetrics& metrics, std::size_t most) {
  ordered_json evaluations = ordered_json::array();
  for (const auto& [name, curve] : metrics.eval_metrics)
    evaluations.push_back({{"id", name}, {"curve", curve_json(curve, most)}});
  return {{"train_loss", curve_json(metrics.train_loss, most)},
          {"eval_loss", curve_json(metrics.eval_loss, most)},
          {"evaluations", evaluations},
          {"rate", curve_json(metrics.samples_per_second, most)},
          {"allocated", curve_json(metrics.allocated_bytes, most)},
          {"resident", curve_json(metrics.resident_bytes, most)},
          {"learning_rate", curve_json(metrics.learning_rate, most)}};
}

ordered_json epochs_json(const RunMetrics& metrics) {
  ordered_json rows = ordered_json::array();
  std::size_t skip = metrics.epochs.size() - std::min(metrics.epochs.size(), kMostEpochRows);
  for (const auto& [epoch, row] : metrics.epochs) {
    if (skip > 0 && skip--) continue;
    ordered_json found = ordered_json::object();
    for (const auto& [name, value] : row.metrics) found[name] = rounded(value);
    rows.push_back({{"epoch", epoch + 1},
                    {"seconds", rounded(row.seconds)},
                    {"whole", row.whole},
                    {"loss", rounded(row.loss)},
                    {"metrics", found}});
  }
  return rows;
}

ordered_json phases_json(const PhaseTimes& phases) {
  if (phases.empty()) return nullptr;
  ordered_json ranks = ordered_json::array();
  for (std::size_t i = 0; i < phases.ranks.size(); ++i) {
    ordered_json parts = ordered_json::array();
    for (const double milliseconds : phases.milliseconds[i]) parts.push_back(rounded(milliseconds));
    ranks.push_back({{"rank", phases.ranks[i]}, {"milliseconds", parts}});
  }
  return {{"parts", phases.parts}, {"measured", phases.measured}, {"ranks", ranks}};
}

/// The mean of the epochs whose time is known.
std::optional<double> seconds_per_epoch(const RunMetrics& metrics) {
  double sum = 0;
  int count = 0;
  for (const auto& [epoch, row] : metrics.epochs) {
    if (!row.seconds || !row.whole) continue;
    sum += *row.seconds;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

ordered_json object_json(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json::parse(text);
}

/// Pictures only of a run `alone` in the page.
ordered_json run_json(const RunFollower& run, const std::string& name, std::size_t most, bool alone) {
  const RunMetrics& metrics = run.metrics();
  const RunReport& report = run.report();
  ordered_json json = {{"name", name},
                       {"path", fs::absolute(run.run().path()).lexically_normal().string()},
                       {"config", object_json(report.config)},
                       {"summary", object_json(report.summary)},
                       {"starts", report.log.starts},
                       {"troubles", report.log.troubles},
                       {"notes", report.notes},
                       {"last_step", metrics.last_step},
                       {"first_time", rounded(metrics.first_time, kAllDigits)},
                       {"last_time", rounded(metrics.last_time, kAllDigits)},
                       {"seconds_per_epoch", rounded(seconds_per_epoch(metrics), kAllDigits)}};
  json["lines"] = {{"read", metrics.lines},
                   {"left_out", metrics.lines_left_out},
                   {"first_left_out", metrics.first_line_left_out}};
  json["losses_not_finite"] = {{"count", metrics.losses_not_finite},
                               {"first", metrics.first_loss_not_finite}};
  json["curves"] = curves_json(metrics, most);
  json["epochs"] = epochs_json(metrics);
  json["epochs_left_out"] = metrics.epochs.size() - json["epochs"].size();
  json["shown"] = ordered_json::array();
  for (const auto& [step, text] : metrics.shown) json["shown"].push_back({{"step", step}, {"text", text}});
  json["batch"] = object_json(alone ? report.batch : "");
  json["evaluation"] = object_json(alone ? report.evaluation : "");
  json["phases"] = phases_json(metrics.phases.empty() ? report.traced : metrics.phases);
  return json;
}

}  // namespace

std::vector<std::string> distinct_names(const std::vector<fs::path>& paths) {
  std::vector<std::vector<std::string>> parts;
  for (const fs::path& path : paths) {
    parts.emplace_back();
    for (const fs::path& part : fs::absolute(path).lexically_normal()) {
      if (!part.empty() && part != "/") parts.back().push_back(part.string());
    }
  }
  const auto name_of = [](const std::vector<std::string>& all, std::size_t count) {
    fs::path name;
    for (std::size_t i = all.size() - std::min(all.size(), count); i < all.size(); ++i) name /= all[i];
    return name.empty() ? std::string("/") : name.string();
  };
  std::vector<std::string> names;
  for (const auto& own : parts) {
    std::size_t count = 1;
    const auto taken = [&](const auto& other) {
      return &other != &own && name_of(other, count) == name_of(own, count);
    };
    while (count < own.size() && std::ranges::any_of(parts, taken)) ++count;
    names.push_back(name_of(own, count));
  }
  return names;
}

std::string page_data(std::span<const RunFollower> runs, bool live) {
  std::vector<fs::path> paths;
  for (const RunFollower& run : runs) paths.push_back(run.run().path());
  const std::vector<std::string> names = distinct_names(paths);
  const std::size_t most =
      std::clamp(kPointsOfAll / std::max<std::size_t>(runs.size(), 1), kFewestPoints, kMostPoints);
  ordered_json page = {{"live", live}, {"runs", ordered_json::array()}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    page["runs"].push_back(run_json(runs[i], names[i], most, runs.size() == 1));
  std::string text = page.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  // Nothing in it may end the element it stands in, or begin a comment there.
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

}  // namespace dtrain
