// Local SGD, with ranks as threads: averaged after each step it is data parallelism, and ranks are equal
// whenever they were averaged.
#include "parallel/forms.h"
#include "parallel/sync/local_sgd_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/thread_ranks.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/sgd.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();

class Batches final : public MicroBatches {
 public:
  Batches(int step, DataShare share, std::shared_ptr<Device> device)
      : step_(step), share_(share), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return 2; }
  Tensors inputs(std::size_t i) override {
    Generator generator(100U * static_cast<unsigned>(step_) + 10U * static_cast<unsigned>(share_.rank) +
                        static_cast<unsigned>(i));
    return {Tensor::randn({4, 6}, generator, device_)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    return mean(mul(outputs[0] + 1.0, outputs[0] + 1.0));
  }
  double weight(std::size_t) const override { return 0.5; }
  void losses_done() override {}
  void gradients_done() override {}

 private:
  int step_;
  DataShare share_;
  std::shared_ptr<Device> device_;
};

struct Outcome {
  std::vector<std::vector<float>> weights;  ///< by rank, before sync_state()
  std::vector<std::vector<float>> settled;
  std::int64_t averages = 0;
};

/// `sync_every` 0: data parallelism.
Outcome train(int ranks, std::int64_t sync_every, int steps) {
  NullLog log;
  Outcome outcome{.weights = std::vector<std::vector<float>>(static_cast<std::size_t>(ranks)),
                  .settled = std::vector<std::vector<float>>(static_cast<std::size_t>(ranks))};
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const StrategyContext context{communicator, device, std::chrono::seconds(30), {&clock}};
    std::unique_ptr<ParallelModel> strategy;
    if (sync_every > 0) {
      strategy = make_local_sgd(context, sync_every);
    } else {
      strategy = make_data_parallel(context);
    }
    strategy->prepare({.build =
                           [](const std::shared_ptr<Device>& where) {
                             Generator generator(2);
                             return std::make_unique<Linear>(6, 3, generator, where);
                           },
                       .make_optimizer = [](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
                         return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9});
                       }},
                      kNever);
    strategy->begin(kNever);
    for (int step = 0; step < steps; ++step) {
      Batches passes(step, strategy->share(), device);
      strategy->step(passes, Exchange::all);
    }
    const auto weights = [&] { return strategy->module().named_parameters()[0].second.to_vector<float>(); };
    const auto rank = static_cast<std::size_t>(communicator.rank());
    outcome.weights[rank] = weights();
    strategy->sync_state(kNever);
    outcome.settled[rank] = weights();
    EXPECT_EQ(strategy->save().model.empty(), communicator.rank() != 0) << "rank 0 saves what was averaged";
    if (rank == 0 && sync_every > 0)
      outcome.averages = dynamic_cast<const LocalSgdSync&>(strategy->sync()).averages();
    communicator.barrier("end")->wait(kNever);
  });
  return outcome;
}

TEST(LocalSgd, AveragedAfterEachStepIsDataParallelism) {
  const Outcome expected = train(3, 0, 6), got = train(3, 1, 6);
  for (std::size_t i = 0; i < expected.settled[0].size(); ++i)
    EXPECT_NEAR(got.settled[0][i], expected.settled[0][i], 1e-6);
  EXPECT_EQ(got.averages, 6) << "and not once more where nothing has changed";
}

TEST(LocalSgd, RanksDifferBetweenAveragesAndNeverAfterOne) {
  const Outcome got = train(3, 4, 6);
  EXPECT_NE(got.weights[0], got.weights[1]) << "two steps after the average";
  EXPECT_EQ(got.settled[0], got.settled[1]);
  EXPECT_EQ(got.settled[0], got.settled[2]);
  EXPECT_EQ(got.averages, 2);
  const Outcome at_once = train(3, 3, 6);
  EXPECT_EQ(at_once.weights[0], at_once.weights[2]);
  EXPECT_NE(got.settled[0], train(3, 0, 6).settled[0]) << "other numbers than data parallelism's";
}

TEST(LocalSgd, NeedsAStep) {
  NullLog log;
  run_thread_ranks(1, {}, log, [](Communicator& communicator) {
    StepClock clock;
    EXPECT_THAT(test::message_of([&] {
                  make_local_sgd({communicator, make_device("cpu"), std::chrono::seconds(1), {&clock}}, 0);
                }),
                HasSubstr("averaged after 1 step or more, got 0"));
  });
}

}  // namespace
}  // namespace dtrain
