// Training on clips and on pictures with masks: the same weights for any number of workers and threads and
// after a break, and what is reported of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Runs : public testing::Test {
 protected:
  fs::path recorded(const std::string& name) const { return fs::path(std::getenv("DTRAIN_PICTURES")) / name; }
  void copy(const std::string& from, const std::string& to) const {
    fs::create_directories((folder_ / to).parent_path());
    fs::copy_file(recorded(from), folder_ / to);
  }
  TrainingRun run(const std::string& name, int world, std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--global-batch-size=4", "--virtual-workers=2", "--augment=imagenet",
                                       "--lr=0.01", "--checkpoint-every=0"});
    return {.world = world,
            .launcher_arguments = {},
            .arguments = std::move(arguments),
            .run_dir = folder_ / name,
            .options = limited_to(std::chrono::seconds(200))};
  }
  /// The value of a metric in the run's last evaluation.
  double evaluated(const std::string& name, const std::string& metric) const {
    double value = -1;
    std::istringstream lines(read_file(folder_ / name / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      if (json["event"].get<std::string>() == "eval") value = json[metric];
    }
    return value;
  }
  TempDir folder_;
};

TEST_F(Runs, ClipsGiveTheSameWeightsAnywhereAndAreNamed) {
  constexpr const char* kFrames[] = {"0-RGB.png", "0-L.png", "0-P.png", "0-RGBA.png"};
  for (int clip = 0; clip < 12; ++clip) {
    for (int frame = 0; frame < 4 + clip % 3; ++frame) {
      copy(std::string("made/") + kFrames[(frame + clip) % 4],
           std::string("data/") + (clip % 2 == 0 ? "run/" : "walk/") + std::to_string(clip) + "/" +
               std::to_string(frame) + ".png");
    }
  }
  const std::vector<std::string> asked = {
      "--dataset=folder:" + (folder_ / "data").string() + ",frames=3,size=16,split=0.67", "--model=r3d-18",
      "--epochs=2"};
  for (const auto& [name, world, threads] :
       {std::tuple{"one", 1, "0"}, {"workers", 2, "1"}, {"threads", 1, "3"}}) {
    std::vector<std::string> arguments = asked;
    arguments.push_back(std::string("--loader-threads=") + threads);
    const RunResult result = train(run(name, world, arguments));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << name;
  }
  std::vector<std::string> part = asked;
  part.push_back("--max-steps=3");
  ASSERT_EQ(train(run("resumed", 1, part)).exit_code, 0);
  const RunResult resumed = train(run("resumed", 1, asked));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(final_weights(folder_ / "resumed"), final_weights(folder_ / "one"));
  EXPECT_THAT(read_file(folder_ / "one/batch.json"), HasSubstr("\"label\""));
  const RunResult predicted = test::run({program("dtrain"), "predict", (folder_ / "one").string(), "--input",
                                         (folder_ / "data/walk").string()});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, testing::StartsWith("sample,class,run,walk\n"));
  EXPECT_EQ(std::ranges::count(predicted.out, '\n'), 7);
  EXPECT_THAT(predicted.out, HasSubstr("data/walk/11,"));
  std::vector<std::string> images = asked;
  images[1] = "--model=resnet18";
  EXPECT_THAT(train(run("x", 1, images)).err, AllOf(HasSubstr("resnet18"), HasSubstr("r3d-18")));
}

TEST_F(Runs, MasksGiveTheSameWeightsAnywhereAndAreEvaluated) {
  for (int i = 0; i < 10; ++i) {
    copy(i % 2 == 0 ? "made/0-RGB.png" : "made/0-L.png", "data/" + std::to_string(i) + ".png");
    copy("masks/61-P.png", "data/" + std::to_string(i) + ".seg.png");
  }
  const std::vector<std::string> asked = {"--dataset=folder:" + (folder_ / "data").string() +
                                              ",mask=seg.png,classes=21,ignore=20,size=32,split=0.8",
                                          "--model=fcn-resnet50", "--epochs=1"};
  for (const auto& [name, world] : {std::pair{"one", 1}, {"two", 2}}) {
    const RunResult result = train(run(name, world, asked));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "one")) << name;
    const double shared = evaluated(name, "mean_iou");
    EXPECT_GE(shared, 0);
    EXPECT_LE(shared, 1);
    EXPECT_EQ(shared, evaluated("one", "mean_iou"));
    EXPECT_EQ(evaluated(name, "pixel_accuracy"), evaluated("one", "pixel_accuracy"));
  }
  const RunResult again = test::run({program("dtrain"), "eval", (folder_ / "one").string(), "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("\"mean_iou\""), HasSubstr("\"pixel_accuracy\"")));
  EXPECT_THAT(train(run("x", 1, {asked[0], "--model=resnet18"})).err,
              AllOf(HasSubstr("a field label"), HasSubstr("mask int64 [32, 32]")));
  std::vector<std::string> turned = asked;
  turned.emplace_back("--augment=imagenet-v2");
  TrainingRun refused = run("x", 1, turned);
  std::erase(refused.arguments, "--augment=imagenet");
  EXPECT_THAT(train(refused).err, AllOf(HasSubstr("imagenet-v2"), HasSubstr("masks")));
}

}  // namespace
}  // namespace dtrain::test
