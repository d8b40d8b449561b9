// A sweep's places, results and folder, and what it takes for the cause of a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/sweep/places.h"
#include "worker/sweep/results.h"
#include "worker/sweep/runner.h"

namespace dtrain::sweep {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(SweepPlaces, CoresAreSharedOutInEqualParts) {
  const MachineShare machine{.cores = {0, 1, 2, 3, 6, 7, 8}, .usable = 7, .gpus = {}};
  const auto three = make_places(machine, true, 3, 1);
  EXPECT_THAT(three[0].cores, ElementsAre(0, 1));
  EXPECT_THAT(three[2].cores, ElementsAre(6, 7));
  EXPECT_THAT(make_places(machine, true, 0, 1), SizeIs(7)) << "a core for each worker";
  EXPECT_THAT(make_places(machine, true, 0, 3), SizeIs(2));
  EXPECT_THAT(make_places(machine, true, 0, 100), SizeIs(1));
  EXPECT_THAT(make_places(machine, true, 1, 1)[0].cores, IsEmpty()) << "alone, it is not bound";
  EXPECT_THAT(make_places(machine, true, 9, 1)[8].cores, ElementsAre(1)) << "more jobs than cores take turns";
}

TEST(SweepPlaces, AQuotaOfCoresCounts) {
  const MachineShare machine{.cores = {0, 1, 2, 3, 4, 5, 6, 7}, .usable = 2, .gpus = {}};
  const auto places = make_places(machine, true, 0, 1);
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_THAT(places[1].cores, ElementsAre(1));
}

TEST(SweepPlaces, EachWorkerHasAGpuOfItsOwn) {
  const MachineShare machine{.cores = {0, 1, 2, 3}, .usable = 4, .gpus = {"0", "GPU-b", "2", "3", "4"}};
  const auto places = make_places(machine, true, 0, 2);
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_THAT(places[1].gpus, ElementsAre("2", "3"));
  EXPECT_THAT(places[1].cores, ElementsAre(2, 3));
  EXPECT_THAT(message_of([&] { make_places(machine, true, 3, 2); }),
              HasSubstr("--jobs: expected 2 jobs of 2 workers at most on 5 GPUs, got 3"));
  EXPECT_THAT(make_places(machine, false, 3, 2), SizeIs(3)) << "on the cores there is no such limit";
}

RunResult result(const std::string& name, RunStatus status, std::map<std::string, double> values) {
  RunResult result;
  result.run = {name, {{"lr", name}}, {{"lr", name}}};
  result.status = status;
  result.values = std::move(values);
  return result;
}

TEST(SweepResults, TheBestComeFirstAndFailuresLast) {
  std::vector<RunResult> results = {result("a", RunStatus::failed, {}),
                                    result("b", RunStatus::finished, {{"accuracy", 0.5}, {"loss", 1}}),
                                    result("c", RunStatus::waiting, {}),
                                    result("d", RunStatus::finished, {{"accuracy", 0.75}, {"loss", 2}})};
  results[0].cause = "no such data";
  EXPECT_EQ(metric_of("", results), "accuracy");
  sort_results(results, "accuracy");
  EXPECT_EQ(results_table(results, "accuracy"),
            "#  lr  accuracy    loss  seconds\n"
            "1   d    0.7500  2.0000      0.0\n"
            "2   b    0.5000  1.0000      0.0\n"
            "-   c         -       -        -  waiting\n"
            "-   a         -       -        -  failed: no such data\n");
  sort_results(results, "loss");
  EXPECT_EQ(results[0].run.name, "b");
  EXPECT_EQ(metric_of("", {result("x", RunStatus::finished, {{"loss", 1}})}), "loss");
}

TEST(SweepResults, OfAnErrorLessIsBetter) {
  std::vector<RunResult> results = {result("a", RunStatus::finished, {{"rmse", 3}}),
                                    result("b", RunStatus::finished, {{"rmse", 1}})};
  sort_results(results, "rmse");
  EXPECT_EQ(results[0].run.name, "b");
}

TEST(SweepResults, AMetricThatNoRunGivesIsFoundAtTheFirst) {
  std::vector<RunResult> results = {result("a", RunStatus::waiting, {})};
  EXPECT_EQ(wrong_metric("f1", results), "") << "nothing is known yet";
  results.push_back(result("b", RunStatus::finished, {{"accuracy", 1}, {"loss", 1}}));
  EXPECT_EQ(wrong_metric("f1", results),
            "metric: expected one of accuracy, loss, which the runs report, got f1");
  EXPECT_EQ(wrong_metric("loss", results), "");
  EXPECT_EQ(wrong_metric("", results), "");
}

TEST(SweepRunner, TheCauseIsWhatTheWorkerSaid) {
  EXPECT_EQ(cause_in("step 1\ndtrain train: rank 0: no data\n\n"
                     "dtrain-launch: rank 0 (host x, local rank 0, pid 3) failed first: exit code 5\n"),
            "dtrain train: rank 0: no data");
  EXPECT_EQ(
      cause_in("dtrain-launch: rank 0 (host x) failed first: killed by SIGSEGV\ndtrain-launch: its log: x\n"),
      "dtrain-launch: rank 0 (host x) failed first: killed by SIGSEGV");
  EXPECT_EQ(cause_in(""), "");
}

class SweepFolders : public testing::Test {
 protected:
  static SweepConfig config(const std::string& text) { return parse_config(text, "s.json"); }
  void open(const std::string& text) {
    SweepFolder folder(folder_ / "s");
    folder.open(config(text), make_runs(config(text)), log_);
  }
  std::string refusal(const std::string& text) {
    return message_of([&] { open(text); });
  }
  test::TempDir folder_;
  NullLog log_;
};

TEST_F(SweepFolders, ASweepGoesOnOnlyWithWhatItWasBegunWith) {
  const std::string first = R"({"options": {"lr": [1, 2], "epochs": 3}})";
  open(first);
  open(first);
  open(R"({"options": {"lr": [1, 2, 3], "epochs": 3}})");  // one more run
  EXPECT_THAT(refusal(first), HasSubstr("was started with a run lr=3, got none"));
  EXPECT_THAT(refusal(R"({"options": {"lr": [1, 2, 3], "epochs": 4}})"),
              HasSubstr("s.json: options.epochs of run lr=1: the sweep in " + (folder_ / "s").string() +
                        " was started with 3, got 4; use another --sweep-dir"));
  EXPECT_THAT(refusal(R"({"options": {"lr": [1, 2, 3], "epochs": 3, "seed": 1}})"),
              HasSubstr("options.seed of run lr=1: the sweep in"));
  EXPECT_THAT(refusal(R"({"program": "./x", "options": {"lr": [1, 2, 3], "epochs": 3}})"),
              HasSubstr("program: the sweep in"));
  EXPECT_THAT(refusal(R"({"nproc_per_node": 2, "options": {"lr": [1, 2, 3], "epochs": 3}})"),
              HasSubstr("nproc_per_node: the sweep in"));
}

TEST_F(SweepFolders, AFolderOfSomethingElseIsLeftAlone) {
  std::filesystem::create_directories(folder_ / "s");
  test::write_file(folder_ / "s" / "thesis.tex", "x");
  EXPECT_THAT(refusal(R"({"options": {}})"), HasSubstr("found thesis.tex in it"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "s" / "sweep.json"));
}

TEST_F(SweepFolders, OneSweepAtATime) {
  const SweepConfig asked = config(R"({"options": {}})");
  SweepFolder holder(folder_ / "s"), second(folder_ / "s");
  holder.open(asked, make_runs(asked), log_);
  EXPECT_THAT(message_of([&] { second.open(asked, make_runs(asked), log_); }),
              HasSubstr("expected no other writer, found process"));
}

TEST_F(SweepFolders, HowARunEndedIsKept) {
  const SweepConfig asked = config(R"({"options": {"lr": [1, 2, 3]}})");
  const std::vector<sweep::Run> runs = make_runs(asked);
  SweepFolder folder(folder_ / "s");
  folder.open(asked, runs, log_);
  EXPECT_FALSE(folder.end_of(runs[0]));
  folder.note_end(runs[0], {.finished = false, .exit_code = 5, .cause = "bad \xff bytes", .seconds = 1});
  EXPECT_EQ(folder.end_of(runs[0])->exit_code, 5);
  folder.forget_end(runs[0]);
  EXPECT_FALSE(folder.end_of(runs[0]));
  // The sweep was killed before it noted an end that the run itself did.
  std::filesystem::create_directories(folder.run(runs[1].name));
  test::write_file(folder.run(runs[1].name) / "summary.json", R"({"status": "finished"})");
  EXPECT_TRUE(folder.end_of(runs[1])->finished);
  std::filesystem::create_directories(folder.run(runs[2].name));
  test::write_file(folder.run(runs[2].name) / "summary.json", R"({"status": "stopped"})");
  EXPECT_FALSE(folder.end_of(runs[2]));
  EXPECT_EQ(read_results(folder, runs)[2].status, RunStatus::begun);
}

}  // namespace
}  // namespace dtrain::sweep
