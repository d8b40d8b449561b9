#include "runtime/metrics/export/exported_run.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/metrics/report/metrics_reader.h"
#include "runtime/metrics/report/read_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

Json object_in(const fs::path& path) {
  const auto text = read_if_there(path, kMostBytes);
  if (!text) return Json::object();
  Json object = Json::parse(*text, nullptr, false);
  if (!object.is_object()) throw DataError(path.string(), -1, "a JSON object", "other text");
  return object;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// FNV-1a, twice with different beginnings: 32 hexadecimal digits that stand for `text`.
std::string digits_of(std::string_view text) {
  const auto hash = [&](std::uint64_t value) {
    for (const char letter : text) value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
    return value;
  };
  return fmt::format("{:016x}{:016x}", hash(0xcbf29ce484222325ULL), hash(0x84222325cbf29ce4ULL));
}

ExportedRun::Status status_of(const Json& summary) {
  const std::string status = summary.contains("status") ? text_of(summary["status"]) : "";
  if (status == "finished") return ExportedRun::Status::finished;
  if (status == "diverged" || status == "failed") return ExportedRun::Status::failed;
  return status == "stopped" ? ExportedRun::Status::stopped : ExportedRun::Status::running;
}

void add_curve(const std::string& name, const Curve& curve, double begin, ExportedRun& run) {
  if (curve.empty()) return;
  std::vector<ExportedPoint> points;
  for (const CurvePoint& point : curve) {
    const double seconds = std::isfinite(point.seconds) ? point.seconds : 0;
    points.push_back({static_cast<std::int64_t>(point.step), begin + seconds, point.value});
  }
  run.curves.emplace_back(name, std::move(points));
}

void add_curves(const RunMetrics& metrics, ExportedRun& run) {
  const double begin = metrics.first_time.value_or(0);
  add_curve("train/loss", metrics.train_loss, begin, run);
  add_curve("train/lr", metrics.learning_rate, begin, run);
  add_curve("train/samples_per_second", metrics.samples_per_second, begin, run);
  add_curve("train/allocated_bytes", metrics.allocated_bytes, begin, run);
  add_curve("train/resident_bytes", metrics.resident_bytes, begin, run);
  add_curve("test/loss", metrics.eval_loss, begin, run);
  for (const auto& [name, curve] : metrics.eval_metrics) add_curve("test/" + name, curve, begin, run);
}

}  // namespace

ExportedRun read_exported_run(const RunDirectory& directory, const std::string& program) {
  const fs::path path = fs::absolute(directory.path()).lexically_normal();
  if (!fs::exists(directory.config())) {
    throw UsageError(path.string() +
                     ": expected the folder of a run, got one without config.json; dtrain runs lists them");
  }
  const Json config = object_in(directory.config()), summary = object_in(directory.summary());
  ExportedRun run;
  run.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  run.program = program;
  run.status = status_of(summary);
  const Json options = config.value("options", Json::object());  // items() borrows it
  for (const auto& [name, option] : options.items()) {
    if (option.is_object() && option.contains("value"))
      run.parameters.emplace_back(name, text_of(option["value"]));
  }
  const Json machine = config.value("machine", Json::object());
  if (machine.contains("host")) run.host = text_of(machine["host"]);

  MetricsReader reader;
  if (const auto text = read_if_there(directory.metrics(), kMostBytes)) reader.add(*text);
  const RunMetrics& metrics = reader.metrics();
  add_curves(metrics, run);
  run.begin = metrics.first_time.value_or(0);
  run.end = metrics.last_time.value_or(run.begin);
  // Not of its place: a run that was copied from a cluster is the same run.
  run.id = digits_of(fmt::format("{}\n{}\n{:.6f}", run.name, run.host, run.begin));
  for (const fs::path& file : {directory.config(), directory.summary(), directory.report()}) {
    if (fs::exists(file)) run.files.push_back(file);
  }
  return run;
}

}  // namespace dtrain
