// Evaluation: what it counts, and how long it waits for whom.
#include "training/engine/evaluate.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "runtime/data/sources/open_source.h"
#include "tests/support/sample.h"
#include "tests/unit/collectives/fake_communicator.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

/// Guesses class 3 for every image, after a while.
class Guess final : public Module {
 public:
  explicit Guess(milliseconds pause) : pause_(pause) {}
  Tensor forward(const Tensor& x) override {
    std::this_thread::sleep_for(pause_);
    Tensor logits = Tensor::zeros({x.size(0), kClasses}, x.shared_device());
    logits.slice(1, 3, 4).fill(1);
    return logits;
  }
  static constexpr std::int64_t kClasses = 10;

 private:
  milliseconds pause_;
};

TEST(Evaluate, CountsEachSampleOnce) {
  const std::shared_ptr<const Source> source = open_source("synthetic:1x2x2,10,23", Split::test, {});
  test::FakeCommunicator communicator(1);
  Guess network(milliseconds(0));
  const Evaluation found =
      evaluate(network, source, 4, communicator, make_device("cpu"), std::chrono::seconds(30));
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < source->size(); ++i) right += test::label(*source, i) == 3 ? 1 : 0;
  EXPECT_EQ(found.samples, source->size());
  EXPECT_DOUBLE_EQ(found.accuracy, static_cast<double>(right) / static_cast<double>(source->size()));
  EXPECT_TRUE(network.is_training());
}

TEST(Evaluate, MayTakeLongerThanTheOthersAreWaitedFor) {
  const std::shared_ptr<const Source> source = open_source("synthetic:1x2x2,10,3", Split::test, {});
  test::FakeCommunicator communicator(1);
  Guess network(milliseconds(400));
  evaluate(network, source, 1, communicator, make_device("cpu"), std::chrono::seconds(1));
  ASSERT_EQ(communicator.started.size(), 1U);
  EXPECT_TRUE(communicator.started[0].waited);
  EXPECT_FALSE(communicator.started[0].late);
}

}  // namespace
}  // namespace dtrain
