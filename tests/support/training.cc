#include "tests/support/training.h"

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

std::vector<Json> metric_lines(const fs::path& run_dir, std::string_view event) {
  const fs::path path = run_dir / "metrics.jsonl";
  std::ifstream in(path);
  if (!in) throw DataError(path.string(), -1, "a metrics file", "none");
  std::vector<Json> lines;
  std::string line;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // no newline yet: it is being written
    Json parsed = Json::parse_or_null(line);
    if (!parsed.is_object()) throw DataError(path.string(), -1, "one JSON object a line", line);
    if (parsed.contains("event") && parsed["event"] == event) lines.push_back(std::move(parsed));
  }
  return lines;
}

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Ten classes told apart by where a bright square lies, with noise.
void write_split(const fs::path& folder, const std::string& prefix, int samples, Generator generator) {
  std::string images = std::string("\0\0\x08\x03", 4) + big_endian(static_cast<std::uint32_t>(samples)) +
                       big_endian(28) + big_endian(28);
  std::string labels = std::string("\0\0\x08\x01", 4) + big_endian(static_cast<std::uint32_t>(samples));
  for (int i = 0; i < samples; ++i) {
    const int label = static_cast<int>(generator.next32() % 10);
    const int top = (label / 5) * 12 + 2, left = (label % 5) * 5 + 1;
    for (int y = 0; y < 28; ++y) {
      for (int x = 0; x < 28; ++x) {
        const bool bright = y >= top && y < top + 8 && x >= left && x < left + 5;
        images += static_cast<char>((bright ? 160 : 0) + generator.next32() % 80);
      }
    }
    labels += static_cast<char>(label);
  }
  write_file(folder / (prefix + "-images-idx3-ubyte"), images);
  write_file(folder / (prefix + "-labels-idx1-ubyte"), labels);
}

bool has_checkpoint(const std::filesystem::path& run_dir) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir / "checkpoints", none)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> command(const TrainingRun& run) {
  std::vector<std::string> argv;
  if (run.start == Start::launcher) {
    argv = {program("dtrain-launch"), "--nproc_per_node=" + std::to_string(run.world)};
    argv.insert(argv.end(), run.launcher_arguments.begin(), run.launcher_arguments.end());
  } else if (run.start == Start::mpirun) {
    argv = {"mpirun", "--oversubscribe", "-np", std::to_string(run.world)};
  }
  const std::vector<std::string> own = {program("dtrain"), "train"};
  const std::vector<std::string>& worker = run.program.empty() ? own : run.program;
  argv.insert(argv.end(), worker.begin(), worker.end());
  argv.insert(argv.end(), run.arguments.begin(), run.arguments.end());
  argv.insert(argv.end(), {"--run-dir", run.run_dir.string()});
  return argv;
}

RunResult train(const TrainingRun& run) {
  RunOptions options = run.options;
  options.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
  options.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  options.environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1";
  // Open MPI unloads its plugins before the leak check, which can then not tell their leaks from ours.
  const char* sanitizer = std::getenv("ASAN_OPTIONS");
  if (run.start == Start::mpirun)
    options.environment["ASAN_OPTIONS"] =
        std::string(sanitizer == nullptr ? "" : sanitizer) + ":detect_leaks=0";
  return test::run(command(run), options);
}

void kill_rank_1_at_a_checkpoint(TrainingRun& run) {
  run.options.environment["DTRAIN_TEST_MARK"] = run.run_dir.string();
  const std::string variable = run.start == Start::mpirun ? "OMPI_COMM_WORLD_RANK" : "RANK";
  run.options.while_running = [run_dir = run.run_dir, variable](pid_t) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!deadline.expired() && !std::filesystem::exists(run_dir / "summary.json")) {
      const auto ranks = ranks_marked("DTRAIN_TEST_MARK", run_dir.string(), variable);
      if (has_checkpoint(run_dir) && ranks.contains(1)) {
        ::kill(ranks.at(1), SIGKILL);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
}

std::vector<StepLine> step_lines(const fs::path& run_dir) {
  std::vector<StepLine> result;
  for (const auto& line : metric_lines(run_dir, "step")) {
    result.push_back({line.at("step"), line.at("epoch"), line.at("loss"), line.at("lr")});
  }
  return result;
}

std::vector<double> losses(const fs::path& run_dir) {
  std::vector<double> result;
  for (const StepLine& line : step_lines(run_dir)) result.push_back(line.loss);
  return result;
}

std::map<std::int64_t, std::vector<SamplesLine>> samples_of_steps(const fs::path& run_dir) {
  std::map<std::int64_t, std::vector<SamplesLine>> steps;
  for (const auto& entry : fs::directory_iterator(run_dir / "logs")) {
    if (!entry.path().filename().string().starts_with("samples-")) continue;
    std::ifstream in(entry.path());
    for (std::string text; std::getline(in, text) && !in.eof();) {
      const Json line = Json::parse(text);
      std::vector<SamplesLine>& lines = steps[line.at("step")];
      const std::int64_t start = line.at("start");
      if (!lines.empty() && start < lines.front().start) continue;
      if (!lines.empty() && start > lines.front().start) lines.clear();
      lines.push_back(
          {start, line.at("epoch"), line.at("world"), line.at("indices").get<std::vector<std::size_t>>()});
    }
  }
  return steps;
}

std::map<std::int64_t, std::vector<int>> times_taken(
    const std::map<std::int64_t, std::vector<SamplesLine>>& steps, std::size_t samples) {
  std::map<std::int64_t, std::vector<int>> epochs;
  for (const auto& [step, lines] : steps) {
    for (const SamplesLine& line : lines) {
      std::vector<int>& counts = epochs[line.epoch];
      counts.resize(samples);
      for (const std::size_t index : line.indices) ++counts.at(index);
    }
  }
  return epochs;
}

std::vector<double> accuracies(const fs::path& run_dir) {
  std::vector<double> result;
  for (const Json& line : metric_lines(run_dir, "eval")) {
    if (line.contains("accuracy")) result.push_back(line.at("accuracy"));
  }
  return result;
}

double last_accuracy(const fs::path& run_dir) {
  const auto lines = metric_lines(run_dir, "eval");
  if (lines.empty()) throw DataError((run_dir / "metrics.jsonl").string(), -1, "an eval line", "none");
  return lines.back().at("accuracy");
}

std::size_t final_weights(const fs::path& run_dir) {
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    const bool set_aside = name.find('.') != std::string::npos;  // step-00000060.refused-damaged
    if (name.starts_with("step-") && !set_aside && name > newest.filename().string()) newest = entry.path();
  }
  if (newest.empty()) throw DataError((run_dir / "checkpoints").string(), -1, "a checkpoint", "none");
  return std::hash<std::string>{}(read_file(newest / "model.safetensors"));
}

void write_small_dataset(const fs::path& folder, int train_samples, int test_samples) {
  fs::create_directories(folder);
  write_split(folder, "train", train_samples, Generator(1));
  write_split(folder, "t10k", test_samples, Generator(2));
}

std::string learnable_text() {
  const std::string words[] = {"the ", "small ", "ring ", "adds ", "what ", "others ", "send. "};
  std::string text;
  for (std::size_t i = 0; text.size() < 5000; ++i) text += words[i * i % 7];
  return text;
}

bool has_fashion_mnist() {
  return fs::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz");
}

}  // namespace dtrain::test
