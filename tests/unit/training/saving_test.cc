// A network and its optimizer to and from files.
#include "training/saving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/autograd/ops.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/adam.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::message_of;
using testing::HasSubstr;

std::unique_ptr<Linear> network(std::uint64_t seed, std::int64_t outputs = 2) {
  Generator generator(seed);
  return std::make_unique<Linear>(3, outputs, generator, make_device("cpu"));
}

std::vector<float> weights_of(const Module& module) {
  return module.named_parameters().front().second.to_vector<float>();
}

void take_steps(Module& module, Optimizer& optimizer, int steps) {
  const Tensor x = Tensor::ones({4, 3}, module.named_parameters().front().second.shared_device());
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    mean(square(module(x))).backward();
    optimizer.step();
  }
}

TEST(Saving, WeightsComeBackAsTheyWere) {
  const test::TempDir folder;
  const auto saved = network(1), loaded = network(2);
  test::write_file(folder / "net.safetensors", "what was there before");
  save_weights(*saved, folder / "net.safetensors");
  load_weights(*loaded, folder / "net.safetensors");
  EXPECT_EQ(weights_of(*saved), weights_of(*loaded));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "nothing is left beside";
}

TEST(Saving, WeightsOfAnotherNetworkAreRefusedAndNothingChanges) {
  const test::TempDir folder;
  const auto wide = network(1, 5), narrow = network(2);
  save_weights(*wide, folder / "net.safetensors");
  const std::vector<float> before = weights_of(*narrow);
  EXPECT_THAT(message_of([&] { load_weights(*narrow, folder / "net.safetensors"); }), HasSubstr("weight"));
  EXPECT_EQ(weights_of(*narrow), before);
  test::write_file(folder / "cut.safetensors", "12");
  EXPECT_THAT(message_of([&] { load_weights(*narrow, folder / "cut.safetensors"); }),
              HasSubstr("cut.safetensors"));
  EXPECT_THAT(message_of([&] { save_weights(*narrow, folder / "none" / "net.safetensors"); }),
              HasSubstr("none"));
}

TEST(Saving, ARestoredLoopGoesOnAsIfNothingHadHappened) {
  const test::TempDir folder;
  NullLog log;
  const auto whole = network(1);
  Adam whole_optimizer(whole->named_parameters(), {.lr = 0.1});
  take_steps(*whole, whole_optimizer, 6);

  const auto first = network(1), second = network(7);
  Adam first_optimizer(first->named_parameters(), {.lr = 0.1}),
      second_optimizer(second->named_parameters(), {.lr = 0.1});
  take_steps(*first, first_optimizer, 4);
  CheckpointStore store(folder.path(), 1, log);
  TrainingState state;
  state.step = 4;
  const auto path = save_checkpoint(store, state, *first, first_optimizer);
  EXPECT_EQ(store.latest()->path, path);
  restore(*store.latest(), *second, second_optimizer);
  take_steps(*second, second_optimizer, 2);
  EXPECT_EQ(weights_of(*second), weights_of(*whole));
}

TEST(Saving, WhatIsNotFiniteIsNotSaved) {
  const test::TempDir folder;
  NullLog log;
  const auto diverging = network(1);
  Adam optimizer(diverging->named_parameters(), {.lr = 0.1});
  take_steps(*diverging, optimizer, 1);
  CheckpointStore store(folder.path(), 1, log);
  TrainingState state;
  state.step = 1;
  save_checkpoint(store, state, *diverging, optimizer);
  diverging->named_parameters().front().second.detach().fill(std::numeric_limits<float>::infinity());
  state.step = 2;
  EXPECT_THAT(message_of([&] { save_checkpoint(store, state, *diverging, optimizer); }),
              HasSubstr("checkpoint of step 2: expected finite numbers, got weight"));
  EXPECT_EQ(store.latest()->state.step, 1);
}

}  // namespace
}  // namespace dtrain
