// Training on pictures: the same weights from a folder or shards, for any number of workers and loader
// threads, and after a kill; what a damaged file does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "runtime/base/clock.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class PictureRuns : public testing::Test {
 protected:
  PictureRuns() {
#ifdef DTRAIN_TEST_WITHOUT_PNG
    constexpr const char* kNames[] = {"0-420-False.jpg", "0-gray.jpg", "exif.jpg"};
#else
    constexpr const char* kNames[] = {"0-RGB.png", "0-L.png", "mistyped.jpg"};
#endif
    const fs::path made = fs::path(std::getenv("DTRAIN_PICTURES")) / "made";
    for (int i = 0; i < 30; ++i) {
      const fs::path to = folder_ / (i % 2 == 0 ? "data/cat" : "data/dog");
      fs::create_directories(to);
      fs::copy_file(made / kNames[i % 3], to / (std::to_string(i) + ".png"));
    }
  }
  std::string data() const { return "folder:" + (folder_ / "data").string() + ",size=28,split=0.8"; }
  TrainingRun run(const std::string& name, int world, const std::vector<std::string>& more) const {
    TrainingRun run;
    run.world = world;
    run.arguments = {"--dataset=" + data(), "--model=lenet",         "--augment=imagenet",
                     "--epochs=2",          "--global-batch-size=6", "--virtual-workers=2"};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    run.run_dir = folder_ / name;
    run.options.timeout = std::chrono::seconds(60);
    return run;
  }
  TempDir folder_;
};

TEST_F(PictureRuns, TheSameWeightsForAnyNumberOfWorkersAndThreads) {
  for (const auto& [name, world, threads, cache] : {std::tuple{"one", 1, "0", "0"},
                                                    {"threads", 1, "3", "0"},
                                                    {"many", 1, "64", "0"},
                                                    {"workers", 2, "1", "0"},
                                                    {"cached", 2, "3", "64"}}) {
    const RunResult result =
        train(run(name, world,
                  {std::string("--loader-threads=") + threads, std::string("--image-cache-mib=") + cache}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << name;
  }
  const RunResult result = train(run("otherwise", 1, {"--seed=1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(final_weights(folder_ / "otherwise"), final_weights(folder_ / "one"));
}

/// Makes train() kill `run`, which is started alone, once its metrics have so many lines.
void kill_after_lines(TrainingRun& run, std::ptrdiff_t lines) {
  const auto has_begun = [metrics = run.run_dir / "metrics.jsonl", lines] {
    return fs::exists(metrics) && std::ranges::count(read_file(metrics), '\n') >= lines;
  };
  run.options.while_running = [has_begun, timeout = run.options.timeout](pid_t process) {
    for (const Deadline deadline = Deadline::after(timeout); !deadline.expired() && !has_begun();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(process, SIGKILL);
  };
}

// By epoch, which samples its steps took; of a step that was repeated, the last start's count.
std::map<std::int64_t, std::vector<std::int64_t>> samples_by_epoch(const fs::path& run) {
  struct Step {
    std::int64_t start = -1, epoch = 0;
    std::vector<std::int64_t> samples;
  };
  std::map<std::int64_t, Step> steps;
  std::istringstream lines(read_file(run / "logs/samples-0.jsonl"));
  for (std::string line; std::getline(lines, line);) {  // one for each micro-batch
    const Json json = Json::parse_or_null(line);
    if (!json.is_object()) continue;
    Step& step = steps[json["step"].integer()];
    if (json["start"].integer() > step.start) step = {json["start"].integer(), json["epoch"].integer(), {}};
    const Json indices = json["indices"];
    for (std::size_t i = 0; i < indices.size(); ++i) step.samples.push_back(indices[i].integer());
  }
  std::map<std::int64_t, std::vector<std::int64_t>> epochs;
  for (const auto& [number, step] : steps)
    epochs[step.epoch].insert(epochs[step.epoch].end(), step.samples.begin(), step.samples.end());
  for (auto& [epoch, samples] : epochs) std::ranges::sort(samples);
  return epochs;
}

TEST_F(PictureRuns, TheSameFromAFolderOrShardsInAnyWorldAndAfterAKill) {
  const std::string packed = (folder_ / "packed/s").string();
  ASSERT_EQ(test::run({program("dtrain"), "data", "pack", "--dataset",
                       "folder:" + (folder_ / "data").string(), "--output", packed})
                .exit_code,
            0);
  const std::string shards = "--dataset=shards:" + packed + "-000000.tar,size=28,split=0.8";
  const std::vector<std::string> asked = {"--epochs=40", "--global-batch-size=4", "--virtual-workers=4"};
  const auto of = [&](const std::string& name, int world, std::vector<std::string> more) {
    more.insert(more.end(), asked.begin(), asked.end());
    return run(name, world, more);
  };
  for (const auto& [name, world, data, threads] : {std::tuple{"one", 1, "--dataset=" + this->data(), "0"},
                                                   {"three", 3, shards, "2"},
                                                   {"four", 4, shards, "8"}}) {
    const RunResult result = train(of(name, world, {data, std::string("--loader-threads=") + threads}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << name;
  }

  // Six steps an epoch: the kill after step 10 or so falls within one, or within the next.
  TrainingRun killed = of(
      "killed", 1, {shards, "--loader-threads=2", "--log-samples", "--log-every=1", "--checkpoint-every=1"});
  killed.start = Start::alone;
  kill_after_lines(killed, 10);
  EXPECT_EQ(train(killed).exit_code, 128 + SIGKILL);
  killed.options.while_running = nullptr;
  const RunResult resumed = train(killed);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(final_weights(killed.run_dir), final_weights(folder_ / "one"));
  const auto epochs = samples_by_epoch(killed.run_dir);
  ASSERT_EQ(epochs.size(), 40U);
  for (const auto& [epoch, samples] : epochs) {
    EXPECT_EQ(samples.size(), 24U) << epoch;
    EXPECT_EQ(std::ranges::adjacent_find(samples), samples.end()) << "a sample twice in epoch " << epoch;
  }
}

// Six steps an epoch: pictures of 32 pixels a side in the first two epochs, of 64 in the third, of 96 in the
// last; evaluated at 48.
TEST_F(PictureRuns, GrowingPicturesAreTheSameInAnyWorldAndAfterAKill) {
  const std::vector<std::string> asked = {
      "--dataset=folder:" + (folder_ / "data").string() + ",size=48,split=0.8",
      "--model=resnet18-imagenet",
      "--augment=imagenet,size=32/96/1/3",
      "--global-batch-size=4",
      "--virtual-workers=2",
      "--mixup=0.2",
      "--cutmix=1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = asked;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (const auto& [name, world, threads] : {std::tuple{"one", 1, "0"}, {"two", 2, "2"}}) {
    const RunResult result =
        train(run(name, world, with({"--epochs=4", std::string("--loader-threads=") + threads})));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << name;
  }
  // Killed in the middle of the epoch of 64, or a little later.
  TrainingRun killed = run("killed", 1, with({"--epochs=4", "--log-every=1", "--checkpoint-every=1"}));
  killed.start = Start::alone;
  kill_after_lines(killed, 16);
  EXPECT_EQ(train(killed).exit_code, 128 + SIGKILL);
  killed.options.while_running = nullptr;
  const RunResult resumed = train(killed);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err + resumed.out, HasSubstr("resuming from step"));
  EXPECT_EQ(final_weights(killed.run_dir), final_weights(folder_ / "one"));

  // The first epochs are those of pictures of 32, the others are not.
  const auto losses_of = [&](const std::string& name, const std::string& size) {
    const RunResult result =
        train(run(name, 1, with({"--epochs=4", "--log-every=1", "--augment=imagenet" + size})));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return losses(folder_ / name);
  };
  const auto growing = losses_of("growing", ",size=32/96/1/3"), small = losses_of("small", ",size=32");
  ASSERT_EQ(growing.size(), 24U);
  ASSERT_EQ(small.size(), 24U);
  EXPECT_TRUE(std::equal(growing.begin(), growing.begin() + 12, small.begin()));
  EXPECT_NE(growing[12], small[12]);
  const RunResult evaluated = test::run({program("dtrain"), "eval", (folder_ / "one").string(), "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(Json::parse(evaluated.out)["accuracy"].number(), last_accuracy(folder_ / "one"));
}

TEST_F(PictureRuns, GrowingPicturesGoThroughStages) {
  const auto losses_of = [&](const std::string& name, int world, std::vector<std::string> form) {
    form.insert(form.end(), {"--dataset=folder:" + (folder_ / "data").string() + ",size=48,split=0.8",
                             "--model=resnet18-imagenet", "--augment=imagenet,size=32/64/0/1",
                             "--global-batch-size=4", "--virtual-workers=0", "--log-every=1"});
    const RunResult result = train(run(name, world, form));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return losses(folder_ / name);
  };
  const auto whole = losses_of("whole", 1, {"--accumulate=2"});
  const auto staged = losses_of("staged", 2, {"--pipeline=2", "--micro-batches=2"});
  ASSERT_EQ(whole.size(), 12U);
  ASSERT_EQ(staged.size(), whole.size());
  for (std::size_t step = 0; step < whole.size(); ++step)
    EXPECT_NEAR(staged[step], whole[step], 1e-4 * whole[step]) << step;
}

TEST_F(PictureRuns, NetworksOfOneSizeTakeNoOther) {
  EXPECT_THAT(train(run("x", 1, {"--augment=imagenet,size=28/56/0/1"})).err,
              AllOf(HasSubstr("--augment"), HasSubstr("size=28/56/0/1 with lenet"), HasSubstr("fc1"),
                    HasSubstr("56 x 56")));
  const std::string larger = "--dataset=folder:" + (folder_ / "data").string() + ",size=32";
  EXPECT_THAT(train(run("x", 1, {larger, "--augment=imagenet,size=48", "--model=vit-small"})).err,
              AllOf(HasSubstr("--augment"), HasSubstr("size=48 with vit-small"), HasSubstr("pos_embed")));
  EXPECT_THAT(train(run("x", 1, {larger, "--augment=imagenet,size=20", "--model=vit-small"})).err,
              AllOf(HasSubstr("size=20 with vit-small"), HasSubstr("multiples of 16")));
  EXPECT_THAT(train(run("x", 1, {"--augment=imagenet,size=20/20"})).err,
              HasSubstr("size=FROM/TO/FIRST/LAST"));
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  EXPECT_EQ(train(run("same", 1, {"--augment=imagenet,size=28"})).exit_code, 0);
}

TEST_F(PictureRuns, MixedBatchesAreTheSameForAnyNumberOfWorkersAndThreads) {
  const std::vector<std::string> recipe = {"--augment=imagenet-v2", "--mixup=0.2", "--cutmix=1",
                                           "--label-smoothing=0.1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), recipe.begin(), recipe.end());
    return more;
  };
  for (const auto& [name, world, threads] :
       {std::tuple{"one", 1, "0"}, {"threads", 1, "3"}, {"workers", 2, "1"}}) {
    const RunResult result = train(run(name, world, with({std::string("--loader-threads=") + threads})));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << name;
  }
  ASSERT_EQ(train(run("resumed", 1, with({"--max-steps=3"}))).exit_code, 0);
  const RunResult resumed = train(run("resumed", 1, recipe));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(final_weights(folder_ / "resumed"), final_weights(folder_ / "one"));
  ASSERT_EQ(train(run("plain", 1, {"--augment=imagenet-v2", "--label-smoothing=0.1"})).exit_code, 0);
  EXPECT_NE(final_weights(folder_ / "plain"), final_weights(folder_ / "one"));
  const RunResult evaluated =
      test::run({program("dtrain"), "eval", "--checkpoint", (folder_ / "one").string()});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
}

TEST_F(PictureRuns, WithPyTorchsDrawsARunResumesInMidEpoch) {
  const std::vector<std::string> asked = {"--virtual-workers=0", "--like-torchvision=2",
                                          "--loader-threads=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), asked.begin(), asked.end());
    return more;
  };
  ASSERT_EQ(train(run("whole", 1, asked)).exit_code, 0);
  ASSERT_EQ(train(run("cut", 1, with({"--max-steps=3"}))).exit_code, 0);
  const RunResult resumed = train(run("cut", 1, asked));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(final_weights(folder_ / "cut"), final_weights(folder_ / "whole"));
  ASSERT_EQ(train(run("other", 1, {"--virtual-workers=0", "--like-torchvision=0"})).exit_code, 0);
  EXPECT_NE(final_weights(folder_ / "other"), final_weights(folder_ / "whole"));
  const auto refused = [&](int world, const std::string& more) {
    return train(run("x", world, with({more}))).err;
  };
  EXPECT_THAT(refused(1, "--virtual-workers=2"),
              AllOf(HasSubstr("--like-torchvision"), HasSubstr("--virtual-workers")));
  EXPECT_THAT(refused(1, "--mixup=1"), AllOf(HasSubstr("--like-torchvision"), HasSubstr("--mixup")));
  EXPECT_THAT(refused(4, "--threads=1"), HasSubstr("got 6 samples for 4 micro-batches"));
}

TEST_F(PictureRuns, WhatCannotBeMixedIsRefused) {
  EXPECT_THAT(train(run("x", 1, {"--task=regression", "--mixup=1"})).err, HasSubstr("--mixup"));
  EXPECT_THAT(train(run("x", 1, {"--label-smoothing=1"})).err, HasSubstr("--label-smoothing"));
}

TEST_F(PictureRuns, PicturesAreNamedByWhatWasLearned) {
  ASSERT_EQ(train(run("run", 1, {})).exit_code, 0);
  const auto predict = [&](const fs::path& input) {
    return test::run({program("dtrain"), "predict", (folder_ / "run").string(), "--input", input.string()});
  };
  const RunResult all = predict(folder_ / "data/dog");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, testing::StartsWith("sample,class,cat,dog\n"));
  EXPECT_EQ(std::ranges::count(all.out, '\n'), 16);
  const std::string one = (folder_ / "data/dog/13.png").string();
  const RunResult single = predict(one);
  ASSERT_EQ(single.exit_code, 0) << single.err;
  const std::string row = single.out.substr(single.out.find('\n') + 1);
  EXPECT_THAT(row, testing::MatchesRegex(".*/13\\.png,(cat|dog),0\\.[0-9]+,0\\.[0-9]+\n"));
  EXPECT_THAT(all.out,
              HasSubstr(row.substr(row.find(".png,") - 2)));  // the same, whatever else is in the batch
  const fs::path archive = folder_ / "s.tar";
  ASSERT_EQ(
      test::run({"/usr/bin/env", "sh", "-c",
                 "cd " + folder_.path().string() + " && cp data/dog/13.png 0.png && tar cf s.tar 0.png"})
          .exit_code,
      0);
  const RunResult shard = predict(archive);
  ASSERT_EQ(shard.exit_code, 0) << shard.err;
  EXPECT_THAT(shard.out, AllOf(HasSubstr("s.tar:0.png,"), HasSubstr(row.substr(row.find(",")))));
  EXPECT_THAT(predict(folder_ / "nowhere.png").err, HasSubstr("nowhere.png"));
  fs::create_directory(folder_ / "empty");
  EXPECT_THAT(predict(folder_ / "empty").err, AllOf(HasSubstr("empty"), HasSubstr("pictures")));
}

// Its folder is its class, whatever the split, the workers and the steps in between.
TEST_F(PictureRuns, WhatTheReportShowsIsNamedByItsFile) {
  ASSERT_EQ(test::run({"/usr/bin/env", "sh", "-c",
                       "cd " + folder_.path().string() +
                           " && i=0; for f in data/*/*.png; do i=$((i+1)); cp $f $i.png; case $f in *cat*) "
                           "echo 0;; *) echo 1;; esac > $i.cls; tar rf s.tar $i.png $i.cls; done"})
                .exit_code,
            0);
  for (const auto& [name, dataset] :
       {std::pair<std::string, std::string>{"folder", data()},
        {"shards", "shards:" + (folder_ / "s.tar").string() + ",size=28,split=0.8"}}) {
    const RunResult trained = train(run(name, 2, {"--dataset=" + dataset}));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const fs::path folder = folder_ / name;
    const Json fed = Json::parse_or_null(read_file(folder / "batch.json"))["samples"];
    const Json found = Json::parse_or_null(read_file(folder / "evaluation.json"))["mistakes"];
    ASSERT_GT(fed.size(), 0U);
    ASSERT_GT(found.size(), 0U);
    for (const auto& [rows, label] : {std::pair{fed, false}, {found, true}}) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::string file = rows[i]["file"].text();
        if (name == "shards") {
          EXPECT_TRUE(file.starts_with((folder_ / "s.tar:").string())) << file;
          EXPECT_TRUE(fs::exists(folder_ / file.substr(file.find(':') + 1))) << file;
          continue;
        }
        EXPECT_TRUE(fs::exists(file)) << file;
        const std::string own =
            label ? (rows[i]["label"].integer() == 0 ? "cat" : "dog") : rows[i]["label"].text();
        EXPECT_EQ(fs::path(file).parent_path().filename(), own) << file;
      }
    }
  }
}

TEST_F(PictureRuns, ADamagedPictureIsNamedOrSkipped) {
  const fs::path bad = folder_ / "data/dog/13.png";
  fs::resize_file(bad, fs::file_size(bad) / 2);
  const RunResult stopped = train(run("stopped", 1, {}));
  EXPECT_EQ(stopped.exit_code, 5);
  EXPECT_THAT(stopped.err, AllOf(HasSubstr("dog/13.png"), HasSubstr("whole")));
  const RunResult skipped = train(run("skipped", 2, {"--on-bad-sample=skip"}));
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, AllOf(HasSubstr("is skipped"), HasSubstr("dog/13.png")));
  const RunResult checked = test::run({program("dtrain"), "data", "check", "--dataset", data()});
  EXPECT_EQ(checked.exit_code, 5);
  EXPECT_THAT(checked.out, AllOf(HasSubstr("dog/13.png"), HasSubstr("30 samples, 1 of them bad")));
  fs::remove(bad);
  EXPECT_EQ(test::run({program("dtrain"), "data", "check", "--dataset", data()}).exit_code, 0);
}

}  // namespace
}  // namespace dtrain::test
