// A run as other trackers know one: its parameters, its curves, its last numbers and its files. What MLflow's
// and W&B's files are written from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/metrics/run_directory.h"

namespace dtrain {

struct ExportedPoint {
  std::int64_t step = 0;
  double time = 0;   ///< seconds since 1970
  double value = 0;  ///< NaN: the run had no finite number there
};

struct ExportedRun {
  std::string name;           ///< of its folder
  std::string id;             ///< 32 hexadecimal digits: the same each time the run is exported
  std::string host;           ///< that wrote it; empty: not told
  std::string program;        ///< "dtrain 0.1.0", which exports it
  double begin = 0, end = 0;  ///< seconds since 1970
  enum class Status { running, finished, failed, stopped } status = Status::running;
  std::vector<std::pair<std::string, std::string>> parameters;  ///< options that were given or have a default
  /// By name: "train/loss", "train/lr", "test/accuracy", … as in the events for TensorBoard, steps ascending.
  std::vector<std::pair<std::string, std::vector<ExportedPoint>>> curves;
  std::vector<std::filesystem::path> files;  ///< config.json, summary.json, report.html, as far as there are
};

/// Reads config.json, metrics.jsonl and summary.json. Throws UsageError where `run` is no run's folder,
/// DataError naming the file where one says nothing that can be read, SystemError.
ExportedRun read_exported_run(const RunDirectory& run, const std::string& program);

/// Writes the run into MLflow's folder of files `root` (made where it is missing), in the experiment
/// `experiment`, over what an earlier export of it left; returns the run's folder there. Throws UsageError
/// for a name that MLflow does not take, SystemError. What is in `root` is read by `mlflow
/// migrate-filestore`, and by any command of MLflow's with MLFLOW_ALLOW_FILE_STORE=true.
std::filesystem::path write_mlflow(const ExportedRun& run, const std::filesystem::path& root,
                                   const std::string& experiment);

/// Writes `root`/wandb/offline-run-<time>-<id>/run-<id>.wandb, as W&B does without network, over what an
/// earlier export of the run left; returns the folder, which `wandb sync` takes. Throws SystemError.
std::filesystem::path write_wandb(const ExportedRun& run, const std::filesystem::path& root,
                                  const std::string& project);

}  // namespace dtrain
