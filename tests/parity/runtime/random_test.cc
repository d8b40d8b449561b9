// uniform_: bit for bit. Permutations are in tests/parity/data.
#include <gtest/gtest.h>

#include "tests/parity/runtime/lenet.h"

namespace dtrain {
namespace {

TEST(RandomParity, UniformIsEqual) {
  const test::Golden golden(DTRAIN_GOLDEN);
  const test::Golden expected = golden["uniform"];
  Generator generator(golden["seed"].get<std::uint64_t>());
  const Tensor values = Tensor::rand({expected["n"].get<std::int64_t>()}, generator, make_device("cpu"),
                                     expected["lo"].get<float>(), expected["hi"].get<float>());
  EXPECT_EQ(values.to_vector<float>(), expected["values"].get<std::vector<float>>());
}

}  // namespace
}  // namespace dtrain
