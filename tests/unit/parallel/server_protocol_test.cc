#include "parallel/server/protocol.h"

#include <gtest/gtest.h>

#include "parallel/server/delays.h"

namespace dtrain::server {
namespace {

TEST(ServerProtocol, RefusesNumbersThatAreNoIntegers) {
  EXPECT_TRUE(tensor_meta(R"({"name":"w","dtype":0,"shape":[2]})"));
  EXPECT_FALSE(tensor_meta(R"({"name":"w","dtype":0.5,"shape":[2]})"));
  EXPECT_FALSE(tensor_meta(R"({"name":"w","dtype":4294967296,"shape":[2]})")) << "0 in 32 bits";
  EXPECT_FALSE(tensor_meta(R"({"name":"w","dtype":0,"shape":[1e43]})"));
  EXPECT_FALSE(tensor_meta(R"({"name":"w","dtype":0,"shape":[18446744073709551615]})"));
  EXPECT_TRUE(state_meta(R"({"tensors":[],"keys":0,"applied":[3]})"));
  EXPECT_FALSE(state_meta(R"({"tensors":[],"keys":1e43,"applied":[3]})"));
  EXPECT_FALSE(state_meta(R"({"tensors":[],"keys":0,"applied":[0.5]})"));
  EXPECT_TRUE(UpdateDelays::parse(R"({"behind":{"0":4},"ahead":{},"pushes":{}})"));
  EXPECT_FALSE(UpdateDelays::parse(R"({"behind":{"0":1e43},"ahead":{},"pushes":{}})"));
}

TEST(ServerProtocol, TakesNothingOutOfAnEmptyPayload) {
  std::size_t offset = 0;
  EXPECT_TRUE(take_values({}, offset, Tensor::zeros({0, 2}, make_device("cpu"))));
  EXPECT_FALSE(take_values({}, offset, Tensor::zeros({1}, make_device("cpu"))));
  EXPECT_EQ(offset, 0U);
}

}  // namespace
}  // namespace dtrain::server
