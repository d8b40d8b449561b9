// What a run is and what became of it, for the person at the terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "training/task.h"

namespace dtrain {

/// "60,000".
std::string format_count(std::int64_t count);
/// "0.93 s", "12.3 s", from a minute on "3 min 20 s".
std::string format_seconds(double seconds);

struct RunIntroduction {
  std::string model;
  std::int64_t parameters = 0, trained = 0;  ///< of them, those that are not frozen; 0: not known
  std::string data;                          ///< what the samples are from
  std::int64_t train_samples = 0, test_samples = 0;
  std::int64_t workers = 1;
  std::string device, backend;
  std::int64_t steps_per_epoch = 0, global_batch = 0;
  std::string optimizer;  ///< empty: the program's own
  double lr = 0;
  std::filesystem::path folder;
};

/// What is trained, on what, by whom, and where its files are: a line each, without the last line's end.
std::string text_of(const RunIntroduction& run);

/// The best of a run's evaluations: by accuracy where they have one, else by loss.
class BestEvaluation {
 public:
  void add(const Evaluation& evaluation, std::int64_t epoch);
  /// "best test accuracy 0.8733 (epoch 9)", epochs from 1; empty where there was none.
  std::string text() const;

 private:
  std::string name_;
  double value_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace dtrain
