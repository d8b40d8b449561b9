// randperm and uniform_: bit for bit.
#include <gtest/gtest.h>

#include "tests/parity/runtime/golden.h"

namespace dtrain {
namespace {

TEST(RandomParity, PermutationsAreEqual) {
  const auto golden = test::load_golden();
  ASSERT_EQ(golden["randperm"].size(), 6U);
  for (const auto& expected : golden["randperm"]) {
    Generator generator(expected["seed"].get<std::uint64_t>());
    std::vector<std::int64_t> order = generator.permutation(expected["n"].get<std::int64_t>());
    const auto first = expected["first"].get<std::vector<std::int64_t>>();
    ASSERT_GE(order.size(), first.size());
    order.resize(first.size());
    EXPECT_EQ(order, first) << "n " << expected["n"] << ", seed " << expected["seed"];
  }
}

TEST(RandomParity, UniformIsEqual) {
  const auto golden = test::load_golden();
  const auto& expected = golden["uniform"];
  Generator generator(golden["seed"].get<std::uint64_t>());
  const Tensor values = Tensor::rand({expected["n"].get<std::int64_t>()}, generator, make_device("cpu"),
                                     expected["lo"].get<float>(), expected["hi"].get<float>());
  EXPECT_EQ(values.to_vector<float>(), expected["values"].get<std::vector<float>>());
}

}  // namespace
}  // namespace dtrain
