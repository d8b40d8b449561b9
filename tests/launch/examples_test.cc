// The other examples: the loop by hand, files of one's own, any program at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string example(const std::string& name) {
  const char* folder = std::getenv("DTRAIN_EXAMPLES");
  return (folder == nullptr ? "." : std::string(folder)) + "/" + name;
}

/// What own_loop printed of its epochs: losses and accuracies, without the seconds.
std::vector<std::string> epochs_of(const RunResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  static const std::regex line("epoch [0-9]+: loss ([0-9.]+), test accuracy ([0-9.]+), [0-9.]+ s");
  std::vector<std::string> epochs;
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), line), end; at != end; ++at)
    epochs.push_back((*at)[1].str() + " " + (*at)[2].str());
  return epochs;
}

TEST(Examples, TheLoopByHandGivesTheSameHoweverItIsStarted) {
  const auto start = [](Start how, int world) {
    TrainingRun training;
    training.program = {example("own_loop")};
    training.start = how;
    training.world = world;
    training.arguments = {"synthetic:1x28x28,10,1024", "2"};
    std::vector<std::string> line = command(training);
    line.resize(line.size() - 2);  // it has no --run-dir
    RunOptions options = limited_to(std::chrono::seconds(100));
    options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    // Open MPI's plugins are gone when a sanitizer looks for leaks, so that none can be told to be theirs.
    if (how == Start::mpirun) options.environment["LSAN_OPTIONS"] = "detect_leaks=0";
    return epochs_of(run(line, options));
  };
  const auto launched = start(Start::launcher, 2), alone = start(Start::alone, 1);
  ASSERT_EQ(launched.size(), 2U);
  EXPECT_EQ(start(Start::mpirun, 2), launched);
  EXPECT_EQ(alone.size(), 2U);
}

/// Eight images of 8 × 8 of each class: lines across, lines down.
void write_photos(const fs::path& folder) {
  for (const char* split : {"train", "test"}) {
    for (const bool down : {false, true}) {
      const fs::path place = folder / split / (down ? "down" : "across");
      fs::create_directories(place);
      for (int i = 0; i < 8; ++i) {
        std::string pixels;
        for (int y = 0; y < 8; ++y) {
          for (int x = 0; x < 8; ++x)
            pixels.push_back((down ? x : y) / 2 % 2 == 0 ? '\xf0' : static_cast<char>(i));
        }
        write_file(place / (std::to_string(i) + ".pgm"), "P5\n8 8\n255\n" + pixels);
      }
    }
  }
}

class OwnDataset : public testing::Test {
 protected:
  OwnDataset() { write_photos(folder_ / "photos"); }
  TrainingRun training(const std::string& name, int world) {
    TrainingRun run;
    run.program = {example("own_dataset")};
    run.world = world;
    run.run_dir = folder_ / name;
    run.arguments = {"--data-dir",
                     (folder_ / "photos").string(),
                     "--epochs",
                     "20",
                     "--lr",
                     "0.2",
                     "--global-batch-size",
                     "8",
                     "--momentum",
                     "0.9",
                     "--log-every",
                     "1"};
    run.options = limited_to(std::chrono::seconds(100));
    return run;
  }
  TempDir folder_;
};

TEST_F(OwnDataset, FilesOfOnesOwnAreLearnedByAnyNumberOfWorkers) {
  const TrainingRun one = training("one", 1), two = training("two", 2);
  for (const TrainingRun& run : {one, two}) {
    const RunResult result = train(run);
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(last_accuracy(run.run_dir), 1);
  }
  const auto a = losses(one.run_dir), b = losses(two.run_dir);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << "shifts are keyed by the sample";
}

// The launcher knows a program made with the library: that a worker lost its peer is not taken for the cause.
TEST_F(OwnDataset, ADamagedFileIsTheCauseThatIsNamed) {
  const fs::path damaged = folder_ / "photos" / "train" / "down" / "3.pgm";
  fs::resize_file(damaged, 40);
  const RunResult result = train(training("damaged", 2));
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err,
              HasSubstr(damaged.string() + ": at byte 29: expected 64 pixels, found the end of the file"));
  EXPECT_THAT(result.err, ContainsRegex("rank [01] .* failed first: exit code 5"));
  EXPECT_THAT(result.err, Not(HasSubstr("made different calls"))) << "the other is told why";
}

TEST(Examples, AProgramStartsItsWorkersOrSaysWhatIsMissing) {
  RunOptions options = limited_to(std::chrono::seconds(60));
  options.environment["PATH"] = program("").substr(0, program("").size() - 1) + ":/usr/bin:/bin";
  const RunResult spawned = run({example("lesson_ddp")}, options);
  EXPECT_EQ(spawned.exit_code, 0) << spawned.err;
  EXPECT_THAT(spawned.out, HasSubstr("basic: weights agree\n"));
  // As one of three workers it starts no others.
  const RunResult launched =
      run({program("dtrain-launch"), "--nproc_per_node=3", example("lesson_ddp")}, options);
  EXPECT_EQ(launched.exit_code, 0) << launched.err;
  EXPECT_THAT(launched.out, HasSubstr("basic: weights agree\n"));
  options.environment["PATH"] = "/nonexistent";
  const RunResult missing = run({example("lesson_ddp")}, options);
  if (missing.exit_code == 0)
    GTEST_SKIP() << "the rest is checked; dtrain-launch is installed on this machine";
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err,
              HasSubstr("spawn_workers: expected dtrain-launch in PATH (No such file or directory) or at "));
  EXPECT_THAT(missing.err, HasSubstr("or start this program with dtrain-launch --nproc_per_node=2"));
}

TEST(Examples, AnyProgramIsAWorker) {
  TempDir folder;
  std::vector<std::string> line{program("dtrain-launch"), "--nproc_per_node=2", "sh",
                                std::string(DTRAIN_SOURCE) + "/examples/launch_anything/shards.sh"};
  for (const char* name : {"a", "b", "c"}) {
    write_file(folder / name, "one\ntwo\n");
    line.push_back((folder / name).string());
  }
  const RunResult result = run(line);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0: 2 lines in " + line[4]));
  EXPECT_THAT(result.out, HasSubstr("rank 1: 2 lines in " + line[5]));
  EXPECT_THAT(result.out, HasSubstr("rank 0: 2 lines in " + line[6]));
}

}  // namespace
}  // namespace dtrain::test
