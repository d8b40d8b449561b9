// The average of weights as one process has it; with values beside PyTorch's it is in the table of
// operations.
#include "runtime/optim/weight_average.h"

#include <gmock/gmock.h>

#include "runtime/base/error.h"
#include "tests/support/several_devices.h"

namespace dtrain::test {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

std::vector<float> values(const Tensor& tensor) { return tensor.to_vector<float>(); }

Tensor number(float value) { return Tensor::from_data({value}, {1}, make_device("cpu")); }

TEST(WeightAverage, BeginsWithTheWeightsAndFollowsThem) {
  Tensor weight = number(1);
  WeightAverage average({{"w", weight}}, {.decay = 0.75});
  EXPECT_TRUE(average.named_state().empty());
  average.update();
  weight.fill(5);
  average.update();
  const NamedTensors state = average.named_state();
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].first, "w.ema");
  EXPECT_THAT(values(state[0].second), ElementsAre(2));
  EXPECT_THAT(values(weight), ElementsAre(5));
}

TEST(WeightAverage, WithoutADecayIsTheMeanOfWhatWasAdded) {
  Tensor weight = number(1);
  WeightAverage average({{"w", weight}}, {});
  average.update();
  EXPECT_TRUE(average.named_state().empty());
  for (float value : {1.0F, 4.0F, 7.0F}) weight.fill(value), average.add();
  EXPECT_EQ(average.count(), 3);
  EXPECT_THAT(values(average.named_state()[0].second), ElementsAre(4));
  WeightAverage resumed({{"w", weight}}, {});
  resumed.load_state(average.named_state());
  resumed.set_count(average.count());
  weight.fill(8);
  resumed.add();
  EXPECT_THAT(values(resumed.named_state()[0].second), ElementsAre(5));
  WeightAverage moving({{"w", weight}}, {.decay = 0.5});
  moving.set_count(4);
  EXPECT_EQ(moving.count(), 0) << "a mean that resumes from it begins anew";
}

TEST(WeightAverage, SwappedTwiceNothingHasChanged) {
  Tensor weight = number(1);
  weight.set_requires_grad(true);
  WeightAverage average({{"w", weight}}, {.decay = 0.5});
  int handed_on = 0;
  average.on_swap([&] { ++handed_on; });
  average.swap();  // there is no average yet
  EXPECT_THAT(values(weight), ElementsAre(1));
  average.update();
  weight.detach().fill(3);
  average.update();
  const std::uint64_t before = weight.version();
  average.swap();
  EXPECT_THAT(values(weight), ElementsAre(2));
  EXPECT_NE(weight.version(), before) << "copies in low precision would be of other values";
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_THAT(values(average.named_state()[0].second), ElementsAre(3));
  average.swap();
  EXPECT_THAT(values(weight), ElementsAre(3));
  EXPECT_THAT(values(average.named_state()[0].second), ElementsAre(2));
  EXPECT_EQ(handed_on, 3);
}

TEST(WeightAverage, CountsAreNotAveraged) {
  const Tensor count = Tensor::full({1}, 7, make_device("cpu"), DType::i64);
  WeightAverage average({{"bn.num_batches_tracked", count}, {"bn.running_mean", number(2)}}, {.decay = 0.5});
  average.update();
  ASSERT_EQ(average.named_state().size(), 1u);
  EXPECT_EQ(average.named_state()[0].first, "bn.running_mean.ema");
}

TEST(WeightAverage, ResumesWhereItWasSaved) {
  Tensor weight = number(1), other = number(1);
  WeightAverage first({{"w", weight}}, {.decay = 0.9}),
      second({{"w", other}, {"new", number(4)}}, {.decay = 0.9});
  first.update();
  NamedTensors state = first.named_state();
  state.emplace_back("w.exp_avg", number(8));
  const NamedTensors averages = take_averages(state);
  EXPECT_EQ(state.size(), 1u);
  second.load_state(averages);
  for (float step : {2.0F, 7.0F, 3.0F}) {
    weight.fill(step), other.fill(step);
    first.update(), second.update();
  }
  EXPECT_EQ(values(first.named_state()[0].second), values(second.named_state()[0].second));
  EXPECT_THAT(values(second.named_state()[1].second), ElementsAre(4)) << "begun at the first update";
}

TEST(WeightAverage, RefusesWhatDoesNotFit) {
  const auto refusal = [](const std::function<void()>& what) {
    try {
      what();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal([] {
                WeightAverage({{"w", number(1)}}, {.decay = 1.5});
              }),
              HasSubstr("decay in [0, 1], got 1.5"));
  WeightAverage average({{"w", number(1)}}, {.decay = 0.5});
  EXPECT_THAT(refusal([&] { average.load_state({{"v.ema", number(1)}}); }), HasSubstr("v.ema"));
  const Tensor two = Tensor::zeros({2}, make_device("cpu"));
  EXPECT_THAT(refusal([&] { average.load_state({{"w.ema", two}}); }), HasSubstr("w.ema"));
}

}  // namespace
}  // namespace dtrain::test
