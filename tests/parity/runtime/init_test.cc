// Initial weights: bit for bit.
#include <gtest/gtest.h>

#include "tests/parity/runtime/lenet.h"

namespace dtrain {
namespace {

TEST(InitParity, LeNetStartsWithPyTorchsWeights) {
  const test::Golden golden(DTRAIN_GOLDEN);
  Generator generator(golden["seed"].get<std::uint64_t>());
  test::LeNet net(generator, make_device("cpu"), true);
  const NamedTensors state = net.state_dict();
  ASSERT_EQ(state.size(), golden["init_lenet"].size());
  for (const auto& [name, tensor] : state) {
    ASSERT_TRUE(golden["init_lenet"].contains(name)) << name;
    const test::Golden expected = golden["init_lenet"][name];
    const auto shape = expected["shape"].get<std::vector<std::int64_t>>();
    EXPECT_EQ(tensor.shape(), Dims(std::span(shape))) << name;
    const auto values = tensor.to_vector<float>();
    const auto first = expected["first"].get<std::vector<float>>();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(values[i], first[i]) << name << " " << i;
    double sum = 0;
    for (const float value : values) sum += value;
    EXPECT_NEAR(sum, expected["sum"].get<double>(), 1e-10) << name;
  }
}

}  // namespace
}  // namespace dtrain
