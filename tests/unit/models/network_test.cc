// Names and shapes as in PyTorch's state_dict, and refusals. Initial values are checked in tests/parity.
#include "models/vision/network.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::string shapes(const Module& network) {
  std::string text;
  for (const auto& [name, tensor] : network.state_dict()) text += name + tensor.shape().to_string() + " ";
  return text;
}

class Networks : public ::testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{0};
};

TEST_F(Networks, LeNet) {
  const auto network = make_network("lenet", {}, generator_, device_);
  EXPECT_EQ(shapes(*network),
            "conv1.weight[20, 1, 3, 3] conv1.bias[20] conv2.weight[50, 20, 5, 5] conv2.bias[50] "
            "fc1.weight[128, 800] "
            "fc1.bias[128] fc2.weight[10, 128] fc2.bias[10] ");
  EXPECT_EQ((*network)(Tensor::zeros({3, 1, 28, 28}, device_)).shape(), (Dims{3, 10}));
}

TEST_F(Networks, Mlp) {
  const auto network = make_network("mlp", {}, generator_, device_);
  EXPECT_EQ(shapes(*network),
            "fc1.weight[512, 784] fc1.bias[512] fc2.weight[512, 512] fc2.bias[512] fc3.weight[10, 512] "
            "fc3.bias[10] ");
  EXPECT_EQ((*network)(Tensor::zeros({3, 1, 28, 28}, device_)).shape(), (Dims{3, 10}));
}

TEST_F(Networks, LeNetFollowsTheInput) {
  const auto network =
      make_network("lenet", {.channels = 3, .height = 32, .width = 32, .classes = 7}, generator_, device_);
  EXPECT_EQ((*network)(Tensor::zeros({2, 3, 32, 32}, device_)).shape(), (Dims{2, 7}));
}

TEST_F(Networks, Refusals) {
  EXPECT_THROW(make_network("lenett", {}, generator_, device_), UsageError);
  EXPECT_THROW(make_network("lenet", {.height = 8}, generator_, device_), UsageError);
}

}  // namespace
}  // namespace dtrain
