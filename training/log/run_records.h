// What a run's config.json and summary.json say.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "parallel/server/delays.h"
#include "runtime/base/environment.h"
#include "runtime/data/source.h"
#include "runtime/metrics/memory.h"
#include "training/engine/evaluate.h"
#include "training/log/model_speed.h"
#include "training/loop/tuned_config.h"
#include "training/options/train_config.h"

namespace dtrain {

/// `fields` are those of its samples, `tuned` what was decided that no option said
/// (StrategyReport::tuned_config), for read_tuned_config() of a later start.
std::string config_json(const Options& options, const Environment& environment, const TrainConfig& config,
                        std::span<const Field> fields, const Device& device, const TunedConfig& tuned);

/// Adds "test accuracy 0.8712" for each of `metrics`, of a `split` "test" or "train".
void add_metrics(std::vector<std::string>& texts, std::string_view split,
                 const std::vector<std::pair<std::string, double>>& metrics);

/// How a run went, for summary.json.
struct RunSummary {
  std::string status;      ///< "finished", "stopped" (by a signal, resumable)
  std::string device;      ///< rank 0's
  bool emulated = false;   ///< then times and rates say nothing about a GPU
  std::int64_t start = 0;  ///< which start of the run this was
  std::int64_t steps = 0, epochs = 0, world_size = 1;
  double loss = 0, samples_per_second = 0, seconds = 0;
  std::optional<ModelSpeed> speed;  ///< where the task says what learning costs
  std::optional<Evaluation> evaluation;
  std::optional<double> seconds_to_first_step;  ///< since the launcher (or this process) started
  std::int64_t resumed_from_step = 0;
  MemoryUse memory;                                  ///< of rank 0 at the end
  std::optional<UpdateDelays> delays;                ///< of the asynchronous updates of all ranks
  std::map<std::string, double> phase_milliseconds;  ///< a step's time by phase
};

/// The samples of a step whose loss stood out.
struct DumpedBatch {
  std::int64_t start = 0, step = 0, epoch = 0;
  int rank = 0;
  double loss = 0;
  std::optional<double> median = {};       ///< of the losses before
  std::vector<std::int64_t> samples = {};  ///< of this rank, in the training split
};

/// logs/batch-step-*.json: with the samples' places in the files of `train`, which may be null, and, where
/// they have files of their own, those. Names that cannot be read are left out.
std::string batch_json(const DumpedBatch& batch, const Source* train);

std::string summary_json(const RunSummary& summary);

}  // namespace dtrain
