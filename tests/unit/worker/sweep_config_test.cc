// What a sweep's file may say, what is refused and how, and which runs it makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "worker/sweep/checks.h"
#include "worker/sweep/plan.h"

namespace dtrain::sweep {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

std::vector<Run> runs_of(const std::string& text) { return make_runs(parse_config(text, "s.json")); }

std::vector<std::string> names_of(const std::vector<Run>& runs) {
  std::vector<std::string> names;
  for (const sweep::Run& run : runs) names.push_back(run.name);
  return names;
}

std::string refusal(const std::string& text) {
  return message_of([&] { runs_of(text); });
}

TEST(SweepConfig, AGridHasEachValueWithEachOther) {
  const auto runs = runs_of(R"({"options": {"momentum": [0, 0.9], "model": "lenet", "lr": [0.1, 1e-2],
                                            "sync_batch_norm": true}})");
  EXPECT_THAT(names_of(runs), ElementsAre("lr=0.1,momentum=0", "lr=0.1,momentum=0.9", "lr=0.01,momentum=0",
                                          "lr=0.01,momentum=0.9"));
  EXPECT_THAT(arguments_of(runs[1]),
              ElementsAre("--lr=0.1", "--model=lenet", "--momentum=0.9", "--sync-batch-norm=true"));
  EXPECT_THAT(runs[1].swept, SizeIs(2));
}

TEST(SweepConfig, ASingleRunHasANameToo) {
  EXPECT_THAT(names_of(runs_of(R"({"options": {"lr": 0.1}})")), ElementsAre("run"));
}

TEST(SweepConfig, NamesArePlainWordsAndDiffer) {
  const auto runs = runs_of(R"({"options": {"dataset": ["csv:/a b/x.csv", "csv:/a/b/x.csv"]}})");
  for (const sweep::Run& run : runs)
    EXPECT_THAT(run.name, MatchesRegex("dataset=csv:-a-b-x.csv-[0-9a-f]{8}"));
  EXPECT_NE(runs[0].name, runs[1].name);
  const std::string longest(300, 'x');
  const auto shortened = runs_of(R"({"options": {"data-dir": [")" + longest + R"(", "y"]}})");
  EXPECT_LE(shortened[0].name.size(), 120U);
}

constexpr const char* kRandom = R"({"method": "random", "count": %d, "seed": %d, "options": {
    "lr": {"min": 0.001, "max": 0.1, "scale": "log"}, "momentum": {"min": 0.5, "max": 0.9},
    "warmup-steps": {"min": 2, "max": 5, "scale": "int"}, "optimizer": ["sgd", "rmsprop"], "epochs": 1}})";

std::vector<Run> draw(int count, int seed) {
  char text[1024];
  std::snprintf(text, sizeof text, kRandom, count, seed);
  return runs_of(text);
}

TEST(SweepConfig, RandomDrawsStayInTheirBoundsAndFollowTheSeed) {
  const auto runs = draw(200, 7);
  std::set<std::string> warmups, optimizers;
  int small = 0;
  for (const sweep::Run& run : runs) {
    const std::map<std::string, std::string> options(run.options.begin(), run.options.end());
    const double lr = std::stod(options.at("lr")), momentum = std::stod(options.at("momentum"));
    EXPECT_TRUE(lr >= 0.001 && lr <= 0.1) << lr;
    EXPECT_TRUE(momentum >= 0.5 && momentum <= 0.9) << momentum;
    small += lr < 0.01 ? 1 : 0;
    warmups.insert(options.at("warmup-steps"));
    optimizers.insert(options.at("optimizer"));
    EXPECT_EQ(options.at("epochs"), "1");
  }
  EXPECT_THAT(warmups, ElementsAre("2", "3", "4", "5"));
  EXPECT_THAT(optimizers, SizeIs(2));
  EXPECT_NEAR(small, 100, 40) << "as many in each decade on a log scale";
  EXPECT_EQ(draw(200, 7), runs);
  EXPECT_NE(draw(200, 8), runs);
}

TEST(SweepConfig, MoreRunsLeaveThoseBeforeAsTheyAre) {
  const auto few = draw(5, 3), more = draw(9, 3);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), more.begin()));
  EXPECT_THAT(
      refusal(R"({"method": "random", "count": 3, "options": {"optimizer": ["sgd", "adam"]}})"),
      HasSubstr("s.json: count: expected no more runs than there are different ones, got 3; 2 were found"));
}

TEST(SweepConfig, WhatIsWrongIsNamedWithItsField) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] : {
           Case{R"({"optoins": {}})", "s.json: optoins: unknown field; did you mean \"options\"?"},
           Case{R"([1])", "s.json: expected one JSON object"},
           Case{R"({})", "s.json: options: expected an object of options, got none"},
           Case{R"({"options": [1]})", "s.json: options: expected an object, got [1]"},
           Case{R"({"options": {"lr": []}})",
                "s.json: options.lr: expected at least one value, got an empty list"},
           Case{R"({"options": {"lr": [0.1, null]}})",
                "s.json: options.lr[1]: expected a string, number or boolean"},
           Case{R"({"options": {"lr": [0.1, 0.1]}})", "s.json: options.lr[1]: expected each value once"},
           Case{R"({"options": {"lr": null}})",
                "s.json: options.lr: expected a value, a list of values or a range"},
           Case{R"({"options": {"lr": {"min": 0, "max": 1}}})", "\"method\": \"random\""},
           Case{R"({"options": {"log-every": 1, "log_every": 2}})", "expected each option once"},
           Case{R"({"count": 3, "options": {}})", "s.json: count: expected only with \"method\": \"random\""},
           Case{R"({"method": "bayes", "options": {}})",
                "s.json: method: expected grid or random, got \"bayes\""},
           Case{R"({"method": "random", "options": {}})", "s.json: count: expected the number of runs"},
           Case{R"({"method": "random", "count": 0, "options": {}})",
                "s.json: count: expected a whole number from 1"},
           Case{R"({"method": "random", "count": "3", "options": {}})", "got \"3\""},
           Case{R"({"nproc_per_node": 1.5, "options": {}})",
                "s.json: nproc_per_node: expected a whole number"},
           Case{R"({"program": 3, "options": {}})", "s.json: program: expected a string, got 3"},
       })
    EXPECT_THAT(refusal(text), HasSubstr(message)) << text;
}

TEST(SweepConfig, WhatIsWrongWithARangeIsNamed) {
  struct Case {
    const char* range;
    const char* message;
  };
  for (const auto& [range, message] : {
           Case{R"({"min": 1})", "s.json: options.lr: expected \"max\" in a range, got none"},
           Case{R"({"min": 1, "max": "2"})", "s.json: options.lr.max: expected a number, got \"2\""},
           Case{R"({"min": 1, "max": 2, "step": 1})", "s.json: options.lr.step: unknown field"},
           Case{R"({"min": 2, "max": 1})", "s.json: options.lr: expected min below max, got 2 and 1"},
           Case{R"({"min": 0, "max": 1, "scale": "log"})",
                "s.json: options.lr.min: expected more than 0 on a log"},
           Case{R"({"min": 0.5, "max": 2, "scale": "int"})", "s.json: options.lr: expected whole numbers"},
           Case{R"({"min": 1, "max": 2, "scale": "cubic"})", "options.lr.scale: expected linear, log or int"},
       })
    EXPECT_THAT(refusal(std::string(R"({"method": "random", "count": 1, "options": {"lr": )") + range + "}}"),
                HasSubstr(message))
        << range;
}

TEST(SweepConfig, TextThatIsNotJsonOrHasAFieldTwiceIsRefusedWithItsPlace) {
  EXPECT_THAT(message_of([] { runs_of("{\"options\": {}"); }), HasSubstr("s.json: at byte "));
  EXPECT_THAT(message_of([] { runs_of(R"({"options": {"lr": 1, "lr": 2}})"); }), HasSubstr("'lr' twice"));
  EXPECT_THAT(message_of([] { read_config("/nowhere/s.json"); }), HasSubstr("/nowhere/s.json: cannot be"));
}

TEST(SweepChecks, OptionsThatTheProgramDoesNotTakeAreNamedBeforeAnythingStarts) {
  const auto refused = [](const std::string& text, const Check& check) {
    const SweepConfig config = parse_config(text, "s.json");
    return message_of([&] { check_runs(config, make_runs(config), {"lr", "momentum"}, check, {}); });
  };
  const Check never = [](const auto&, const auto&) { FAIL() << "names come first"; };
  EXPECT_THAT(
      refused(R"({"options": {"lrr": 1}})", never),
      HasSubstr("s.json: options.lrr: dtrain train has no option of that name; did you mean \"lr\"?"));
  EXPECT_THAT(refused(R"({"options": {"run_dir": "x"}})", never), HasSubstr("s.json: options.run-dir: "));
  const Check second = [](const std::vector<std::string>& arguments, const Environment& environment) {
    EXPECT_EQ(environment.at("WORLD_SIZE"), "2");
    if (arguments[0] == "--lr=b") throw UsageError("--lr: not that");
  };
  EXPECT_THAT(refused(R"({"nproc_per_node": 2, "options": {"lr": ["a", "b"]}})", second),
              testing::StrEq("s.json: run lr=b: --lr: not that"));
}

}  // namespace
}  // namespace dtrain::sweep
