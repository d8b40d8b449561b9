// MLflow's file store (mlflow/store/tracking/file_store.py): a folder for each experiment and each run in it,
// a file for each parameter, tag and metric; a metric's lines are its points.
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/metrics/export/exported_run.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestValue = 6000;

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw SystemError("write " + path.string(), errno);
}

/// As YAML has it: in single quotes, those inside doubled.
std::string quoted(const std::string& text) {
  std::string yaml = "'";
  for (const char letter : text)
    yaml += letter == '\'' ? "''" : std::string(1, letter == '\n' ? ' ' : letter);
  return yaml + "'";
}

/// The number that MLflow gives the experiment of that name, if it were made here: 18 digits.
std::string experiment_id(const std::string& name) {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  for (const char letter : name) value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  return fmt::format("{}", 100'000'000'000'000'000ULL + value % 899'999'999'999'999'999ULL);
}

std::int64_t milliseconds(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 1000)); }

int status_number(ExportedRun::Status status) {
  switch (status) {
    case ExportedRun::Status::running:
      return 1;
    case ExportedRun::Status::finished:
      return 3;
    case ExportedRun::Status::failed:
      return 4;
    case ExportedRun::Status::stopped:
      return 5;
  }
  return 1;
}

std::string uri(const fs::path& path) {
  std::string text = "file://";
  for (const char letter : path.string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
                       std::string_view("/-_.~").find(letter) != std::string_view::npos;
    text += plain ? std::string(1, letter) : fmt::format("%{:02X}", static_cast<unsigned char>(letter));
  }
  return text;
}

std::string lines_of(const std::vector<ExportedPoint>& points) {
  std::string lines;
  for (const ExportedPoint& point : points) {
    const std::string value = std::isfinite(point.value) ? fmt::format("{}", point.value) : "nan";
    lines += fmt::format("{} {} {}\n", milliseconds(point.time), value, point.step);
  }
  return lines;
}

fs::path write_mlflow_files(const ExportedRun& run, const fs::path& root, const std::string& experiment) {
  if (experiment.empty() || experiment.find('\n') != experiment.npos)
    throw UsageError("MLflow: expected the name of an experiment, got '" + experiment + "'");
  const std::string id = experiment_id(experiment);
  const fs::path place = fs::absolute(root).lexically_normal() / id, folder = place / run.id;
  fs::create_directories(place.parent_path() / ".trash");
  if (!fs::exists(place / "meta.yaml")) {
    write_text(
        place / "meta.yaml",
        fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\nlast_update_time: {}\n"
                    "lifecycle_stage: active\nname: {}\n",
                    quoted(uri(place)), milliseconds(run.begin), id, milliseconds(run.end),
                    quoted(experiment)));
  }
  fs::remove_all(folder);
  for (const auto& [name, value] : run.parameters)
    write_text(folder / "params" / name, value.substr(0, kLongestValue));
  for (const auto& [name, points] : run.curves) write_text(folder / "metrics" / name, lines_of(points));
  for (const auto& [name, value] : {std::pair<std::string, std::string>{"mlflow.runName", run.name},
                                    {"mlflow.source.name", run.program},
                                    {"mlflow.source.type", "LOCAL"},
                                    {"mlflow.user", "dtrain"},
                                    {"dtrain.host", run.host}}) {
    if (!value.empty()) write_text(folder / "tags" / name, value);
  }
  fs::create_directories(folder / "artifacts");
  for (const fs::path& file : run.files) fs::copy_file(file, folder / "artifacts" / file.filename());
  const std::string end =
      run.status == ExportedRun::Status::running ? "null" : fmt::format("{}", milliseconds(run.end));
  write_text(
      folder / "meta.yaml",
      fmt::format(
          "artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
          "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nrun_uuid: {}\nsource_name: ''\n"
          "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: dtrain\n",
          quoted(uri(folder / "artifacts")), end, id, quoted(run.id), quoted(run.name), quoted(run.id),
          milliseconds(run.begin), status_number(run.status)));
  return folder;
}

}  // namespace

fs::path write_mlflow(const ExportedRun& run, const fs::path& root, const std::string& experiment) {
  try {
    return write_mlflow_files(run, root, experiment);
  } catch (const fs::filesystem_error& error) {
    throw SystemError("write " + error.path1().string(), error.code().value());
  }
}

}  // namespace dtrain
