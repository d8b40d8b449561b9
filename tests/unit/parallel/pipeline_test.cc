// Pipelines, with ranks as threads: schedules, the bits of gradient accumulation, time that stages wait
// against the formula, evaluation and state.
#include "parallel/forms.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include "collectives/thread_ranks.h"
#include "parallel/mesh.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/bench/pipeline/idle.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/layers.h"

namespace dtrain {
namespace {

using test::ChainBatches;
using test::Layers;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kOneByOne = PipelineSchedule::one_forward_one_backward;

struct Way {
  PipelineSchedule schedule;
  int chunks;
  StageCut cut = {};
};
const Way kWays[] = {{PipelineSchedule::gpipe, 1},
                     {kOneByOne, 1},
                     {PipelineSchedule::interleaved, 2},
                     {PipelineSchedule::interleaved, 3}};

/// How long a step takes where each forward and each backward of a stage's chunk takes 1, and messages
/// nothing. 0: it never ends.
int time_of(const Way& way, int stages, int count) {
  using Kind = StageAction::Kind;
  std::vector<std::vector<StageAction>> todo;
  for (int stage = 0; stage < stages; ++stage)
    todo.push_back(stage_actions(way.schedule, stage, stages, count, way.chunks));
  const int runs = stages * way.chunks;
  std::map<std::tuple<Kind, int, int>, int> done;  // kind, run of the network, micro-batch: when it ended
  std::vector<int> now(todo.size());
  std::vector<std::size_t> next(todo.size());
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t stage = 0; stage < todo.size(); ++stage) {
      if (next[stage] == todo[stage].size()) continue;
      const StageAction& action = todo[stage][next[stage]];
      const int run = action.chunk * stages + static_cast<int>(stage);
      const bool forward = action.kind == Kind::forward, free = forward && run == 0;
      const auto before = forward           ? std::tuple(Kind::forward, run - 1, action.micro_batch)
                          : run + 1 == runs ? std::tuple(Kind::forward, run, action.micro_batch)
                                            : std::tuple(Kind::backward, run + 1, action.micro_batch);
      const auto ready = done.find(before);
      if (!free && ready == done.end()) continue;
      now[stage] = std::max(now[stage], free ? 0 : ready->second) + 1;
      done[{action.kind, run, action.micro_batch}] = now[stage];
      ++next[stage];
      moves = true;
    }
  }
  for (std::size_t stage = 0; stage < todo.size(); ++stage) {
    if (next[stage] != todo[stage].size()) return 0;
  }
  return *std::max_element(now.begin(), now.end());
}

TEST(PipelineSchedule, EachMicroBatchGoesOnceForwardAndThenOnceBackwardThroughEachChunk) {
  for (const Way& way : kWays) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const int count : {1, 2, 3, 8, 12}) {
        for (int stage = 0; stage < stages; ++stage) {
          const auto actions = stage_actions(way.schedule, stage, stages, count, way.chunks);
          std::vector<int> forwards(static_cast<std::size_t>(way.chunks)), backwards = forwards;
          for (const StageAction& action : actions) {
            const auto chunk = static_cast<std::size_t>(action.chunk);
            int& next = action.kind == StageAction::Kind::forward ? forwards[chunk] : backwards[chunk];
            EXPECT_EQ(action.micro_batch, next++);
            EXPECT_LE(backwards[chunk], forwards[chunk]);
          }
          EXPECT_THAT(forwards, testing::Each(count));
          EXPECT_THAT(backwards, testing::Each(count));
          EXPECT_EQ(most_alive(actions), alive_bound(way.schedule, stage, stages, count, way.chunks))
              << stages << " stages, stage " << stage;
        }
      }
    }
  }
  EXPECT_EQ(alive_bound(PipelineSchedule::gpipe, 1, 4, 8), 8);
  EXPECT_EQ(alive_bound(kOneByOne, 1, 4, 8), 3);
  EXPECT_EQ(alive_bound(PipelineSchedule::interleaved, 1, 4, 8, 2), 9);
}

TEST(PipelineSchedule, StagesOfEqualTimeWaitAsLongAsTheFormulaSays) {
  for (const Way& way : kWays) {
    for (const int stages : {2, 3, 4, 8}) {
      for (const int count : {stages, 2 * stages, 4 * stages}) {
        const double busy = 2.0 * count * way.chunks, all = time_of(way, stages, count);
        EXPECT_DOUBLE_EQ(all, busy / (1 - idle_share(stages, count, way.chunks)))
            << stages << " stages, " << count << " micro-batches, " << way.chunks << " chunks";
      }
    }
  }
  EXPECT_DOUBLE_EQ(idle_share(4, 8), 3.0 / 11);
  EXPECT_DOUBLE_EQ(idle_share(4, 8, 2), 3.0 / 19);
}

TEST(PipelineSchedule, SaysWhatCannotBeInterleaved) {
  EXPECT_THAT(test::message_of([] { stage_actions(PipelineSchedule::interleaved, 0, 4, 8, 1); }),
              HasSubstr("2 chunks or more a stage for interleaved stages, got 1"));
  EXPECT_THAT(test::message_of([] { stage_actions(kOneByOne, 0, 4, 8, 2); }),
              HasSubstr("one chunk a stage for a schedule that is not interleaved, got 2"));
}

TEST(PipelineSchedule, StagesAreCutEvenly) {
  EXPECT_EQ(cut_evenly(std::vector<double>{1, 1, 1, 1}, 2), (std::vector<std::size_t>{2, 4}));
  EXPECT_EQ(cut_evenly(std::vector<double>{5, 1, 1, 1}, 2), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(cut_evenly(std::vector<double>{1, 1, 1, 9}, 2), (std::vector<std::size_t>{3, 4}));
  EXPECT_THAT(test::message_of([] {
                cut_evenly(std::vector<double>{1, 1, 1}, 4);
              }),
              HasSubstr("one part for each of 4 stages, got 3 parts"));
}

ModelFactory factory_of(int layers, std::optional<double> norm) {
  GradientLimits limits;
  limits.norm = norm;
  return {.build = [=](const std::shared_ptr<Device>& device) -> std::unique_ptr<Module> {
            return std::make_unique<Layers>(layers, device);
          },
          .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.2, .momentum = 0.9});
          },
          .limits = limits,
          .example =
              [](const std::shared_ptr<Device>& device) {
                return Tensors{Tensor::ones({2, 8}, device)};
              }};
}

using State = std::map<std::string, std::vector<float>>;

State accumulated(int ranks, int layers, std::size_t count, std::optional<double> norm) {
  NullLog log;
  State state;
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const auto model = make_data_parallel({communicator, device, kPatience, {&clock}});
    Strategy& strategy = *model;
    strategy.prepare(factory_of(layers, norm), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < 3; ++step) {
      ChainBatches passes(step, strategy.share(), count, device);
      strategy.step(passes, Exchange::all);
    }
    if (communicator.rank() != 0) return;
    for (const auto& [name, tensor] : strategy.module().state_dict()) state[name] = tensor.to_vector<float>();
  });
  return state;
}

struct Piped {
  State state;
  std::map<std::string, int> saved;  ///< by how many ranks
  std::vector<PipelineStats> stats;  ///< by stage, of the first copies
  std::vector<float> outputs;
};

Piped piped(int copies, int stages, int layers, std::size_t count, const Way& way,
            std::optional<double> norm = std::nullopt) {
  NullLog log;
  std::mutex mutex;
  Piped piped;
  piped.stats.resize(static_cast<std::size_t>(stages));
  run_thread_ranks(copies * stages, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", copies}, {"pp", stages}}, kNever);
    const PipelineLinks links(mesh, way.chunks > 1 ? PipelineShape::ring : PipelineShape::line, kNever);
    const auto model =
        make_pipeline({communicator, device, kPatience, {&clock}}, {links, mesh.group("dp")},
                      {.stages = {.schedule = way.schedule, .chunks = way.chunks, .cut = way.cut}});
    Strategy& strategy = *model;
    strategy.prepare(factory_of(layers, norm), kNever);
    strategy.begin(kNever);
    for (int step = 0; step < 3; ++step) {
      ChainBatches passes(step, strategy.share(), count, device);
      strategy.step(passes, Exchange::all);
      EXPECT_EQ(passes.losses, 1);
      EXPECT_EQ(passes.gradients, 1);
    }
    strategy.sync_state(kNever);
    strategy.module().eval();
    const Tensors outputs = strategy.evaluate({Tensor::full({1, 8}, 0.5, device)});
    EXPECT_EQ(outputs.empty(), !strategy.holds_outputs());
    EXPECT_EQ(strategy.holds_outputs(), mesh.coordinate("pp") + 1 == stages);
    const std::lock_guard lock(mutex);
    if (!outputs.empty()) piped.outputs = outputs[0].to_vector<float>();
    for (const NamedShard& part : strategy.save().model) {
      piped.state[part.name] = part.tensor.to_vector<float>();
      ++piped.saved[part.name];
    }
    if (mesh.coordinate("dp") == 0)
      piped.stats[static_cast<std::size_t>(mesh.coordinate("pp"))] =
          dynamic_cast<const Pipeline&>(model->schedule()).stats();
  });
  return piped;
}

TEST(Pipeline, GivesTheBitsOfAccumulation) {
  for (const auto& [stages, count] : {std::pair{1, 2}, {2, 4}, {4, 3}, {3, 9}, {4, 8}}) {
    const State expected = accumulated(1, 12, static_cast<std::size_t>(count), std::nullopt);
    for (const Way& way : kWays) {
      if (way.chunks > 1 && stages == 1) continue;
      const Piped got = piped(1, stages, 12, static_cast<std::size_t>(count), way);
      EXPECT_EQ(got.state, expected) << stages << " stages, " << count << " micro-batches";
      for (const auto& [name, times] : got.saved) EXPECT_EQ(times, 1) << name;
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(got.stats[static_cast<std::size_t>(stage)].most_alive,
                  alive_bound(way.schedule, stage, stages, count, way.chunks));
      }
    }
  }
}

// Wherever the network is cut.
TEST(Pipeline, GivesTheSameBitsForEachCut) {
  const State expected = accumulated(1, 6, 4, 0.01);
  for (const char* cut : {"even", "auto", "0,1,2", "0,1,5", "0,4,5"})
    EXPECT_EQ(piped(1, 3, 6, 4, {kOneByOne, 1, parse_stages(cut)}, 0.01).state, expected) << cut;
  for (const char* cut : {"auto", "0,1,4,5"}) {
    EXPECT_EQ(piped(1, 2, 6, 4, {PipelineSchedule::interleaved, 2, parse_stages(cut)}, 0.01).state, expected)
        << cut;
  }
}

// The norm too is added up as one process adds it up, wherever the network is cut.
TEST(Pipeline, LimitsTheNormBitForBit) {
  const State expected = accumulated(1, 12, 4, 0.01);
  EXPECT_NE(accumulated(1, 12, 4, std::nullopt), expected) << "a limit that bites";
  for (const int stages : {2, 3, 4}) {
    EXPECT_EQ(piped(1, stages, 12, 4, {kOneByOne, 1}, 0.01).state, expected) << stages << " stages";
    EXPECT_EQ(piped(1, stages, 12, 4, {PipelineSchedule::interleaved, 2}, 0.01).state, expected) << stages;
  }
}

TEST(Pipeline, GoesTogetherWithDataParallelismAndLimits) {
  const State expected = accumulated(2, 4, 4, 0.01);
  EXPECT_NE(accumulated(2, 4, 4, std::nullopt), expected) << "a limit that bites";
  for (const Way& way : {Way{kOneByOne, 1}, Way{PipelineSchedule::interleaved, 2}}) {
    const Piped got = piped(2, 2, 4, 4, way, 0.01);
    ASSERT_EQ(got.state.size(), expected.size());
    for (const auto& [name, values] : expected) {
      EXPECT_EQ(got.saved.at(name), 1) << name << ": one copy writes it";
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(got.state.at(name)[i], values[i], 1e-6);
    }
    EXPECT_EQ(got.outputs.size(), 8U);
  }
}

// Stages that only sleep, so that two cores can show four of them. How near the formula they come on a
// machine that does nothing else is pipeline_idle's to show; here they work beside each other and not in
// turns.
TEST(Pipeline, WorksOnSeveralStagesAtOnce) {
  for (const Way& way : {kWays[0], kWays[1], kWays[2]}) {
    const double formula = idle_share(4, 8, way.chunks), in_turns = 3.0 / 4, limit = (formula + in_turns) / 2;
    const bench::Idle idle = bench::measure_idle(
        {.schedule = way.schedule, .stages = 4, .micro_batches = 8, .chunks = way.chunks}, 10, limit);
    EXPECT_LE(idle.share, limit) << way.chunks << " chunks";
    EXPECT_GT(idle.share, formula - 0.05) << way.chunks << " chunks";
  }
}

/// A part that makes 7 features, and one behind it that takes 8.
class Narrowing final : public Module, public Chained {
 public:
  explicit Narrowing(const std::shared_ptr<Device>& device) {
    Generator generator(11);
    add_module("makes7", std::make_shared<Linear>(8, 7, generator, device));
    add_module("takes8", std::make_shared<Linear>(8, 8, generator, device));
  }
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<LayerUnit> chain() const override {
    return {layer_unit("makes7", children()[0].second), layer_unit("takes8", children()[1].second)};
  }
};

TEST(Pipeline, AStageThatSendsAWrongShapeIsNamedByAll) {
  NullLog log;
  std::atomic<int> heard = 0;
  const TimePoint start = steady_clock().now();
  const auto train = [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, {{"dp", 1}, {"pp", 2}}, kNever);
    const PipelineLinks links(mesh, PipelineShape::line, kNever);
    const auto model =
        make_pipeline({communicator, device, kPatience, {&clock}}, {links, mesh.group("dp")}, {});
    Strategy& strategy = *model;
    ModelFactory factory = factory_of(2, std::nullopt);
    factory.build = [](const std::shared_ptr<Device>& on) { return std::make_unique<Narrowing>(on); };
    try {
      strategy.prepare(factory, kNever);
      strategy.begin(kNever);
      ChainBatches passes(0, strategy.share(), 4, device);
      strategy.step(passes, Exchange::all);
    } catch (const Error& error) {
      communicator.abort(error.what());  // as training does, before it takes leave
      if (std::string(error.what()).find("[2, 7]") != std::string::npos) ++heard;
      throw;
    }
  };
  EXPECT_THROW(run_thread_ranks(2, {}, log, train), UsageError);
  EXPECT_EQ(heard, 2);
  EXPECT_LT(steady_clock().now() - start, std::chrono::seconds(10));
}

TEST(Pipeline, SaysWhatCannotBe) {
  EXPECT_THAT(test::message_of([] {
                piped(1, 4, 3, 2, {kOneByOne, 1});
              }),
              HasSubstr("one part for each of 4 stages, got 3 parts"));
  EXPECT_THAT(test::message_of([] {
                piped(1, 2, 3, 2, {PipelineSchedule::interleaved, 2});
              }),
              HasSubstr("one part for each of 4 stages, got 3 parts"));
}

}  // namespace
}  // namespace dtrain
