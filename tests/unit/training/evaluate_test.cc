// Evaluation: what it counts, and how long it waits for whom.
#include "training/engine/evaluate.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "models/tasks/classification.h"
#include "runtime/base/error.h"
#include "tests/support/sample.h"
#include "tests/unit/collectives/fake_communicator.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kClasses = 10;

/// Guesses class 3 for every image, after a while.
std::function<Tensors(const Tensors&)> guess_after(milliseconds pause) {
  return [pause](const Tensors& inputs) {
    std::this_thread::sleep_for(pause);
    Tensor logits = Tensor::zeros({inputs[0].size(0), kClasses}, inputs[0].shared_device());
    logits.slice(1, 3, 4).fill(1);
    return Tensors{logits};
  };
}

TEST(Evaluate, CountsEachSampleOnce) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,23", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  const Evaluation found =
      evaluate(task, guess_after(milliseconds(0)), source,
               {.batch_size = 4, .patience = std::chrono::seconds(30)}, communicator, make_device("cpu"));
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < source->size(); ++i) right += test::label(*source, i) == 3 ? 1 : 0;
  EXPECT_EQ(found.samples, source->size());
  EXPECT_DOUBLE_EQ(found["accuracy"], static_cast<double>(right) / static_cast<double>(source->size()));
  EXPECT_THROW(found["speed"], UsageError);
}

TEST(Evaluate, RanksWithoutOutputsCountNothing) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,23", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  int calls = 0;
  evaluate(
      task,
      [&](const Tensors&) {
        ++calls;
        return Tensors{};
      },
      source, {.batch_size = 8, .counts = false, .patience = std::chrono::seconds(30)}, communicator,
      make_device("cpu"));
  EXPECT_EQ(calls, 3);
  ASSERT_EQ(communicator.started.size(), 1U);
  EXPECT_EQ(communicator.started[0].span.count, 4U);  // loss, accuracy, samples, units
}

TEST(Evaluate, MayTakeLongerThanTheOthersAreWaitedFor) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,3", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  evaluate(task, guess_after(milliseconds(400)), source,
           {.batch_size = 1, .patience = std::chrono::seconds(1)}, communicator, make_device("cpu"));
  ASSERT_EQ(communicator.started.size(), 1U);
  EXPECT_TRUE(communicator.started[0].waited);
  EXPECT_FALSE(communicator.started[0].late);
}

}  // namespace
}  // namespace dtrain
