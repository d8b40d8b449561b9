// What the evaluations of a run say about how to continue: the best value of one metric, for how many it has
// not been better, and what follows (a lower learning rate, the end of the run, a checkpoint to keep).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "training/options/train_config.h"
#include "training/task.h"

namespace dtrain {

/// The same on every rank: evaluations are. State of checkpoints goes through state() and load().
class MetricMonitor {
 public:
  /// --monitor, --early-stopping, --lr-patience and --keep-best of `config`.
  explicit MetricMonitor(const TrainConfig& config);

  /// Looks at what an epoch's evaluation after `step` steps found. Throws UsageError, naming the metrics
  /// there are, where the monitored one is none of them.
  void take(const Evaluation& found, std::int64_t step);

  /// Whether the evaluation that was taken last is the best of the run, and is to be kept.
  bool keeps_last() const noexcept { return keeps_best_ && best_.since == 0 && best_.value.has_value(); }
  /// How often the plateau schedule has lowered the learning rate.
  int plateaus() const noexcept { return plateaus_; }
  /// Why the run ends now (--early-stopping), for people; nothing: it does not.
  std::optional<std::string> why_stop() const;

  /// For TrainingState::schedule: finite numbers; empty where nothing is monitored.
  std::map<std::string, double> state() const;
  /// Takes over what state() gave; of a checkpoint without, or of another metric, everything starts anew.
  void load(const std::map<std::string, double>& state);

 private:
  /// The best value so far, and how many evaluations came behind it.
  struct Best {
    std::optional<double> value;
    std::int64_t since = 0;
    std::int64_t step = 0;  ///< finished steps when it was found

    /// A value is better where it beats the best by more than `margin` of it.
    bool take(double value, bool less_is_better, double margin, std::int64_t step);
  };

  std::string metric_;
  bool is_used_, keeps_best_, lowers_rate_;
  std::optional<std::int64_t> patience_;
  std::int64_t lr_patience_;
  Best best_;     ///< of the run
  Best plateau_;  ///< by a margin, since the rate was lowered last
  int plateaus_ = 0;
};

/// Whether less of it is better: what ends in the name of an error (loss, error, perplexity, mse, rmse, mae,
/// rmsle, mape).
bool less_is_better(std::string_view metric);

}  // namespace dtrain
