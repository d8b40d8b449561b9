// A run that was trained, to be used: which task it learned, with which settings, on what kind of samples.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "training/train_main.h"
#include "training/use/weights.h"

namespace dtrain {

struct SavedRun {
  std::filesystem::path path;
  Options options;  ///< as the run had them
  std::shared_ptr<const Task> task;
  std::vector<Field> fields;  ///< of its samples
};

/// The run that a command is for: `given`, or where that is empty the newest in runs/ here, which is reported
/// to people. Throws UsageError, with `example`, where there is neither.
std::string run_or_newest(const std::string& given, const std::string& example, Log& log);

/// Reads config.json of the run directory `path`, which `program` made. Where an older version made it, which
/// did not note the samples' fields, its data set is opened. Throws UsageError when there is no run, or one
/// of another program (an option that this one does not have, another network), DataError for a damaged file.
SavedRun open_run(const TrainProgram& program, const std::filesystem::path& path, Log& log);

/// The run's weights, or those of `checkpoint` if that is not empty (open_weights). Throws UsageError for the
/// checkpoint of a run that learned something else, or from other columns.
SavedWeights weights_of(const SavedRun& run, const std::string& checkpoint, Log& log);

/// The run's network on `device` with `weights`, in evaluation. Throws as load_weights.
std::unique_ptr<Module> load_network(const SavedRun& run, const SavedWeights& weights,
                                     const std::shared_ptr<Device>& device);

/// For config.json: what samples are made of, and back. The latter throws DataError, naming `path`.
std::string fields_json(std::span<const Field> fields);
std::vector<Field> parse_fields(const std::string& json, const std::filesystem::path& path);

}  // namespace dtrain
