// Drives whole training runs through the real programs and reads back what they left: losses, accuracies,
// weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace dtrain::test {

/// How the workers of a run are started.
enum class Start { alone, launcher, mpirun };

/// A training run to start: `<program> <arguments> --run-dir <run_dir>`.
struct TrainingRun {
  std::vector<std::string> program = {};  ///< empty: dtrain train
  Start start = Start::launcher;
  int world = 1;
  std::vector<std::string> launcher_arguments;  ///< before the program, for Start::launcher
  std::vector<std::string> arguments;
  std::filesystem::path run_dir;
  RunOptions options;
};

/// The command line of `run`.
std::vector<std::string> command(const TrainingRun& run);

/// Starts it and waits. mpirun is allowed to run as root and to oversubscribe.
RunResult train(const TrainingRun& run);

/// Makes train() kill rank 1 with -9 as soon as the run has a checkpoint.
void kill_rank_1_at_a_checkpoint(TrainingRun& run);

/// One `{"event":"step",…}` line of metrics.jsonl.
struct StepLine {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;
  double lr = 0;
};

/// Every step line, in file order, but for one that is being written. Throws DataError for a line that is not
/// JSON.
std::vector<StepLine> step_lines(const std::filesystem::path& run_dir);

/// The losses of step_lines().
std::vector<double> losses(const std::filesystem::path& run_dir);

/// One line of a log of samples (--log-samples).
struct SamplesLine {
  std::int64_t start = 0, epoch = 0;
  int world = 0;
  std::vector<std::size_t> indices;
};

/// What all ranks logged of each step when it was done last. A killed worker's last line, which may be torn,
/// is left out.
std::map<std::int64_t, std::vector<SamplesLine>> samples_of_steps(const std::filesystem::path& run_dir);

/// How often each of `samples` was taken in each epoch, by these.
std::map<std::int64_t, std::vector<int>> times_taken(
    const std::map<std::int64_t, std::vector<SamplesLine>>& steps, std::size_t samples);

/// Accuracies of all `{"event":"eval",…}` lines that have one.
std::vector<double> accuracies(const std::filesystem::path& run_dir);

/// Accuracy of the last `{"event":"eval",…}` line. Throws DataError when there is none.
double last_accuracy(const std::filesystem::path& run_dir);

/// A hash of all bytes of model.safetensors in the newest checkpoint. Throws DataError when there is none.
std::size_t final_weights(const std::filesystem::path& run_dir);

/// Writes a learnable classification set in Fashion-MNIST's layout and file names (plain IDX, 28 × 28, 10
/// classes).
void write_small_dataset(const std::filesystem::path& folder, int train_samples, int test_samples);

/// 5,000 letters of words in an order that a small transformer learns.
std::string learnable_text();

/// True when Debian's Fashion-MNIST is installed; tests that need the real set skip without it.
bool has_fashion_mnist();

}  // namespace dtrain::test
