// Where pipelines are cut: the arithmetic against every cut there is, lists, and choices by measured time
// that ranks agree on and that a later start keeps.
#include "parallel/schedule/stage_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>

#include "collectives/thread_ranks.h"
#include "parallel/schedule/stage_actions.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/layers.h"

namespace dtrain {
namespace {

using test::Layers;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNone = std::numeric_limits<double>::infinity();

/// The cost of the most expensive run; infinite where a run has no part that is needed.
double cost_of(const std::vector<std::size_t>& ends, const std::vector<double>& costs,
               const std::vector<bool>& needed) {
  double most = 0;
  for (std::size_t run = 0, begin = 0; run < ends.size(); begin = ends[run++]) {
    double cost = 0;
    bool enough = needed.empty();
    for (std::size_t part = begin; part < ends[run]; ++part) {
      cost += costs[part];
      enough = enough || needed[part];
    }
    most = std::max(most, enough ? cost : kNone);
  }
  return most;
}

/// The least of all cuts of parts from `begin` on, into runs behind `ends`.
double best_of(std::vector<std::size_t>& ends, std::size_t begin, std::size_t runs,
               const std::vector<double>& costs, const std::vector<bool>& needed) {
  if (ends.size() + 1 == runs) {
    ends.push_back(costs.size());
    const double cost = begin < costs.size() ? cost_of(ends, costs, needed) : kNone;
    ends.pop_back();
    return cost;
  }
  double best = kNone;
  for (std::size_t end = begin + 1; end < costs.size(); ++end) {
    ends.push_back(end);
    best = std::min(best, best_of(ends, end, runs, costs, needed));
    ends.pop_back();
  }
  return best;
}

TEST(StageChoice, NoOtherCutHasAFasterSlowestStage) {
  Generator generator(3);
  const auto random = [&](std::uint64_t below) { return generator.next32() % below; };
  int checked = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t parts = 1 + random(9), runs = 1 + random(std::min<std::size_t>(parts, 4));
    std::vector<double> costs;
    std::vector<bool> needed;
    for (std::size_t i = 0; i < parts; ++i) {
      costs.push_back(static_cast<double>(random(20)));
      if (round % 2 == 1) needed.push_back(random(3) != 0);
    }
    std::vector<std::size_t> none;
    const double best = best_of(none, 0, runs, costs, needed);
    if (best == kNone) {
      EXPECT_THROW(cut_evenly(costs, static_cast<int>(runs), needed), UsageError);
      continue;
    }
    const auto ends = cut_evenly(costs, static_cast<int>(runs), needed);
    ASSERT_EQ(ends.size(), runs);
    EXPECT_EQ(ends.back(), parts);
    EXPECT_TRUE(std::ranges::is_sorted(ends, std::ranges::less_equal{}) || runs == 1);
    EXPECT_EQ(cost_of(ends, costs, needed), best) << "round " << round;
    ++checked;
  }
  EXPECT_GT(checked, 200);
}

TEST(StageChoice, IsWrittenAsOneWordOrAsAList) {
  EXPECT_EQ(parse_stages("even"), StageCut{StageCut::Kind::even});
  EXPECT_EQ(parse_stages("auto"), StageCut{StageCut::Kind::measured});
  EXPECT_EQ(parse_stages("0,3,7"), (StageCut{StageCut::Kind::listed, {0, 3, 7}}));
  const auto refused = [](const char* text) { return test::message_of([&] { parse_stages(text); }); };
  EXPECT_THAT(refused("evn"), HasSubstr("'evn': expected even, auto, or the number of each stage's first"));
  EXPECT_THAT(refused("0,,3"), HasSubstr("expected even, auto, or"));
  EXPECT_THAT(refused(""), HasSubstr("expected even, auto, or"));
  EXPECT_THAT(refused("1,3"), HasSubstr("the first stage to begin at part 0, got 1"));
  EXPECT_THAT(refused("0,3,3"), HasSubstr("that ascend, got 3 behind 3"));
}

TEST(StageChoice, ListsMustFitTheNetwork) {
  const std::vector<LayerUnit> chain = Layers(4, make_device("cpu")).chain();
  EXPECT_THAT(StageChoice(parse_stages("0,1"), 2, 2).ends(chain), ElementsAre(1, 4));
  EXPECT_THAT(StageChoice(parse_stages("even"), 2, 2).ends(chain), ElementsAre(2, 4));
  EXPECT_THAT(test::message_of([&] { StageChoice(parse_stages("0,4"), 2, 2).ends(chain); }),
              HasSubstr("each of 2 stages, of the parts 0 to 3, got 0,4"));
  EXPECT_THAT(test::message_of([&] { StageChoice(parse_stages("0,1,2"), 2, 2).ends(chain); }),
              HasSubstr("each of 2 stages"));
}

/// Layers with one that has no parameters before and behind each.
class Spread final : public Module, public Chained {
 public:
  explicit Spread(const std::shared_ptr<Device>& device) : layers_(2, device) {
    for (const auto& [name, layer] : layers_.children()) add_module(name, layer);
  }
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<LayerUnit> chain() const override {
    const LayerUnit none{{}, [](const Tensor& x) { return tanh(x); }};
    const auto parts = layers_.chain();
    return {none, none, parts[0], none, none, parts[1], none};
  }

 private:
  Layers layers_;
};

ModelFactory factory_of(std::function<std::unique_ptr<Module>(const std::shared_ptr<Device>&)> build) {
  return {.build = std::move(build), .make_optimizer = {}, .example = [](const auto& device) {
            return Tensors{Tensor::ones({2, 8}, device)};
          }};
}

struct Decided {
  std::vector<std::size_t> ends;
  std::map<std::string, std::string> tuned_config;
  std::string plan;
};

/// By three ranks, which agree.
Decided decided(const ModelFactory& factory, const char* cut, int stages, int runs) {
  NullLog log;
  std::mutex mutex;
  std::vector<Decided> all;
  run_thread_ranks(3, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StageChoice choice(parse_stages(cut), stages, runs);
    choice.decide(factory, device, communicator, Deadline::never());
    Decided mine{choice.ends(chain_of(factory, device)), choice.tuned_config(), choice.plan()};
    const std::lock_guard lock(mutex);
    all.push_back(std::move(mine));
  });
  for (const Decided& one : all) {
    EXPECT_EQ(one.ends, all.front().ends);
    EXPECT_EQ(one.tuned_config, all.front().tuned_config);
  }
  return all.front();
}

TEST(StageChoice, RanksAgreeOnWhatTheyMeasure) {
  const ModelFactory factory =
      factory_of([](const auto& device) { return std::make_unique<Layers>(6, device); });
  const Decided got = decided(factory, "auto", 2, 4);
  ASSERT_EQ(got.ends.size(), 4U);
  EXPECT_EQ(got.ends.back(), 6U);
  const StageCut written = parse_stages(got.tuned_config.at("stages"));
  EXPECT_THAT(written.firsts, ElementsAre(0, got.ends[0], got.ends[1], got.ends[2]));
  EXPECT_THAT(got.plan, HasSubstr("\nstages: " + got.tuned_config.at("stages")));
  EXPECT_TRUE(decided(factory, "even", 2, 4).tuned_config.empty()) << "what was asked for is no choice";
  EXPECT_TRUE(decided(factory, "0,1,2,3", 2, 4).plan.empty());
}

TEST(StageChoice, EachStageHasParameters) {
  const ModelFactory factory =
      factory_of([](const auto& device) { return std::make_unique<Spread>(device); });
  const Decided got = decided(factory, "auto", 2, 2);
  EXPECT_GT(got.ends[0], 2U);
  EXPECT_LE(got.ends[0], 5U);
  EXPECT_THAT(test::message_of([&] { decided(factory, "auto", 3, 3); }),
              HasSubstr("a part with parameters for each of 3 stages, got 2 of 7 parts"));
}

TEST(StageChoice, KeepsWhatTheRunBeganWith) {
  ModelFactory factory = factory_of([](const auto& device) { return std::make_unique<Layers>(6, device); });
  std::map<std::string, std::string> before = {{"stages", "0,5"}};
  factory.earlier_config = [&] { return before; };
  const auto measure = factory.example;
  factory.example = {};  // nothing is measured
  const Decided kept = decided(factory, "auto", 2, 2);
  EXPECT_THAT(kept.ends, ElementsAre(5, 6));
  EXPECT_EQ(kept.tuned_config, before) << "the next start finds it again";
  EXPECT_THAT(kept.plan, HasSubstr("stages: 0,5, as at the start of the run"));
  EXPECT_THAT(decided(factory, "0,2", 2, 2).ends, ElementsAre(2, 6)) << "what is asked for counts";
  for (const char* unfit : {"0,2,5", "0,6", "even", "auto", "what?"}) {
    before["stages"] = unfit;
    EXPECT_THAT(test::message_of([&] { decided(factory, "auto", 2, 2); }), HasSubstr("expected an example"))
        << unfit;
  }
  factory.example = measure;
  EXPECT_EQ(decided(factory, "auto", 2, 2).ends.size(), 2U);
}

}  // namespace
}  // namespace dtrain
