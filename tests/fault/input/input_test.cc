// Bad input of every kind: one clear line, a non-zero exit code, nothing lost.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

class Input : public ::testing::Test {
 protected:
  void SetUp() override { write_small_dataset(data(), 320, 40); }

  fs::path data() const { return folder_ / "data"; }
  fs::path run_dir() const { return folder_ / "run"; }

  RunResult train_with(const std::vector<std::string>& more, int world = 1) const {
    std::vector<std::string> arguments = {"--model",  "mlp", "--data-dir",          data().string(),
                                          "--epochs", "1",   "--global-batch-size", "32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train({.start = world == 1 ? Start::alone : Start::launcher,
                  .world = world,
                  .launcher_arguments = {},
                  .arguments = arguments,
                  .run_dir = run_dir(),
                  .options = {}});
  }

  // The program ended with `code` and exactly one line on standard error, which holds every part of `parts`.
  static void expect_one_line(const RunResult& result, ExitCode code, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part), std::string::npos) << "missing '" << part << "' in: " << result.err;
  }

  TempDir folder_;
};

TEST_F(Input, UnknownAndImpossibleOptions) {
  expect_one_line(train_with({"--learning-rat", "1"}), ExitCode::usage, {"--learning-rat"});
  expect_one_line(train_with({"--momentun=0.9"}), ExitCode::usage,
                  {"--momentun", "did you mean --momentum?"});
  expect_one_line(train_with({"--lr=-1"}), ExitCode::usage, {"--lr", "-1"});
  expect_one_line(train_with({"--model=lenett"}), ExitCode::usage, {"lenett", "lenet"});
  expect_one_line(train_with({"--dataset=fashion-minst"}), ExitCode::usage,
                  {"fashion-minst", "fashion-mnist"});
  expect_one_line(train_with({"--batch-size=4"}), ExitCode::usage, {"--batch-size", "--global-batch-size"});
  expect_one_line(train_with({"--backend=nccl"}), ExitCode::usage, {"nccl", "tcp"});
  EXPECT_FALSE(fs::exists(run_dir())) << "a refused run must not leave a folder";
}

TEST_F(Input, GlobalBatchThatTheWorkersCannotShare) {
  const RunResult result = train_with({"--global-batch-size", "1"}, 2);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::usage)) << result.err;
  EXPECT_NE(result.err.find("--global-batch-size"), std::string::npos) << result.err;
}

TEST_F(Input, MissingData) {
  fs::remove_all(data());
  const RunResult result = train_with({});
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find(data().string()), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("data_dir"), std::string::npos) << result.err;
}

TEST_F(Input, CutImages) {
  const fs::path images = data() / "train-images-idx3-ubyte";
  fs::resize_file(images, fs::file_size(images) - 1);
  expect_one_line(train_with({}), ExitCode::data, {images.string(), "expected", "found"});
}

TEST_F(Input, LabelOutOfRange) {
  const fs::path labels = data() / "train-labels-idx1-ubyte";
  std::string content = read_file(labels);
  content[8 + 100] = 10;
  write_file(labels, content);
  expect_one_line(train_with({}), ExitCode::data, {labels.string(), "108", "10"});
}

TEST_F(Input, OwnFilesThatAreNoTablesOrArrays) {
  write_file(data() / "table.csv", "a,b,kind\n1,2,0\n3,many,1\n");
  expect_one_line(
      train_with({"--dataset=csv:table.csv,label=kind,split=0.5"}), ExitCode::data,
      {(data() / "table.csv").string(), "row 2 (line 3), column b", "expected a number", "\"many\""});
  expect_one_line(train_with({"--dataset=csv:table.csv,label=sort,split=0.5"}), ExitCode::data,
                  {"a column sort in the header", "a, b, kind"});
  expect_one_line(train_with({"--dataset=csv:table.csv,label=kind"}), ExitCode::usage,
                  {"split=0.9", "neither"});
  write_file(data() / "image.npy", "PK");
  expect_one_line(train_with({"--dataset=npy:image=image.npy,split=0.5"}), ExitCode::data,
                  {(data() / "image.npy").string(), "at byte 0", "NUMPY"});
  // Good numbers, but none to be predicted.
  write_file(data() / "table.csv", "a,b,kind\n1,2,0\n3,4,1\n");
  expect_one_line(train_with({"--dataset=csv:table.csv,label=kind,split=0.5", "--task=regression"}),
                  ExitCode::usage, {"x float32 [2], label int64 []", "a field y"});
  EXPECT_FALSE(fs::exists(run_dir())) << "a refused run must not leave a folder";
}

TEST_F(Input, CountsThatDiffer) {
  write_small_dataset(folder_ / "other", 319, 40);
  fs::copy_file(folder_ / "other" / "train-labels-idx1-ubyte", data() / "train-labels-idx1-ubyte",
                fs::copy_options::overwrite_existing);
  expect_one_line(train_with({}), ExitCode::data, {"320", "319"});
}

TEST_F(Input, CorruptCheckpointFallsBackToTheOneBefore) {
  ASSERT_EQ(train_with({"--max-steps", "6", "--checkpoint-every", "3"}).exit_code, 0);
  const fs::path newest = run_dir() / "checkpoints" / "step-00000006" / "model.safetensors";
  std::string content = read_file(newest);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  write_file(newest, content);
  const RunResult result = train_with({"--checkpoint-every", "3", "--log-every", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("step-00000006"), std::string::npos) << result.err;
  EXPECT_EQ(step_lines(run_dir()).size(), 7U) << "resumed at step 3 with one line every 10 steps before";
}

TEST_F(Input, CorruptCheckpointAskedForByPathIsRefused) {
  ASSERT_EQ(train_with({"--max-steps", "6", "--checkpoint-every", "3"}).exit_code, 0);
  const fs::path checkpoint = run_dir() / "checkpoints" / "step-00000006";
  fs::resize_file(checkpoint / "model.safetensors", 1000);
  const RunResult result =
      train({.start = Start::alone,
             .world = 1,
             .launcher_arguments = {},
             .arguments = {"--model", "mlp", "--data-dir", data().string(), "--epochs", "1",
                           "--global-batch-size", "32", "--resume", checkpoint.string()},
             .run_dir = folder_ / "other",
             .options = {}});
  expect_one_line(result, ExitCode::data, {checkpoint.string(), "expected", "found"});
}

TEST_F(Input, ResumeOfAnotherRecipeIsRefused) {
  ASSERT_EQ(train_with({"--max-steps", "3"}).exit_code, 0);
  expect_one_line(train_with({"--seed", "5"}), ExitCode::usage, {"seed", "0", "5"});
}

TEST_F(Input, FileInTheWayOfTheRunDirectory) {
  write_file(run_dir(), "a file");
  expect_one_line(train_with({}), ExitCode::usage, {run_dir().string(), "expected a directory"});
}

// A mount of its own: root ignores permission bits, but not a read-only or full file system.
class Mounted : public Input {
 protected:
  void SetUp() override {
    Input::SetUp();
    fs::create_directory(folder_ / "mount");
    if (!mount_tmpfs("size=1m")) {
      GTEST_SKIP() << "cannot mount a tmpfs here (needs root): " << std::strerror(errno);
    }
    mounted_ = true;
  }
  bool mount_tmpfs(const char* size) const {
    return ::mount("tmpfs", (folder_ / "mount").c_str(), "tmpfs", 0, size) == 0;
  }
  void TearDown() override {
    if (mounted_) ::umount2((folder_ / "mount").c_str(), MNT_DETACH);
  }

  RunResult train_on_mount(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--model",  "mlp", "--data-dir",          data().string(),
                                          "--epochs", "1",   "--global-batch-size", "32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train({.start = Start::alone,
                  .world = 1,
                  .launcher_arguments = {},
                  .arguments = arguments,
                  .run_dir = folder_ / "mount" / "run",
                  .options = limited_to(std::chrono::seconds(120))});
  }

  bool mounted_ = false;
};

TEST_F(Mounted, ReadOnlyRunDirectory) {
  ASSERT_EQ(::mount(nullptr, (folder_ / "mount").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  expect_one_line(train_on_mount(), ExitCode::system, {(folder_ / "mount").string(), "Read-only"});
}

TEST_F(Mounted, DiskTooSmallIsRefusedBeforeTheFirstStep) {
  // The MLP and its optimizer state take more than the 1 MiB there is.
  const RunResult result = train_on_mount({"--momentum", "0.9"});
  expect_one_line(result, ExitCode::system, {(folder_ / "mount").string()});
  EXPECT_FALSE(fs::exists(folder_ / "mount" / "run" / "metrics.jsonl"));
}

TEST_F(Mounted, DiskThatFillsUpInMidRunLeavesTheCheckpointsBefore) {
  ASSERT_EQ(::umount((folder_ / "mount").c_str()), 0);
  // Checkpoints of 5 MiB: room for the first step's, none for the last step's. Which of those between are
  // taken depends on how fast the disk is, these two are taken always.
  ASSERT_TRUE(mount_tmpfs("size=8m"));
  const RunResult result =
      train_on_mount({"--momentum", "0.9", "--checkpoint-every", "1", "--keep-checkpoints", "0"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::system)) << result.err;
  for (const char* part : {"was not saved, those before it are intact", "No space left", "checkpoints/"})
    EXPECT_NE(result.err.find(part), std::string::npos) << "missing '" << part << "' in: " << result.err;
  const fs::path run_dir = folder_ / "mount" / "run";
  const RunResult eval =
      run({program("dtrain"), "eval", "--checkpoint", run_dir.string(), "--data-dir", data().string()});
  EXPECT_EQ(eval.exit_code, 0) << eval.err;
}

}  // namespace
}  // namespace dtrain::test
