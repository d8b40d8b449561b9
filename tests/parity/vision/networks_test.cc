// timm's and torchvision's networks: their names, shapes and numbers, with weights that a formula gives
// (make_networks.py).
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "models/vision/network.h"
#include "runtime/autograd/grad_mode.h"
#include "tests/support/json.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

/// As weight_values() in make_networks.py.
Tensor weight_values(const std::string& name, const Dims& shape, const std::shared_ptr<Device>& device) {
  const auto begin = static_cast<std::int64_t>(
      (crc32_z(0, reinterpret_cast<const Bytef*>(name.data()), name.size()) & 0xffff) * 31);
  double fan_in = 1;
  for (int i = 1; i < shape.rank(); ++i) fan_in *= static_cast<double>(shape[i]);
  const bool is_matrix = shape.rank() == 2 || shape.rank() == 4;
  double center = 0, reach = 0.1;
  if (name.ends_with("layer_scale")) {
    center = reach = 0.5;
  } else if (is_matrix) {
    reach = std::sqrt(3.0 / fan_in);
  } else if (name.ends_with("running_var") || name.ends_with(".weight")) {
    center = 1;
    reach = 0.25;
  }
  std::vector<float> values(static_cast<std::size_t>(shape.product()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double unit =
        static_cast<double>((static_cast<std::int64_t>(i) * 7919 + begin) % 509 - 254) / 254.0;
    values[i] = static_cast<float>(center + reach * unit);
  }
  return Tensor::from_data(values, shape, device);
}

void fill(Module& network, const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  for (auto& [name, tensor] : network.state_dict()) {
    if (tensor.dtype() == DType::f32) Tensor(tensor).copy_from(weight_values(name, tensor.shape(), device));
  }
}

TEST(VisionNetworks, AreTheirsWithAnyWeights) {
  const auto device = make_device("cpu");
  const std::string folder = std::getenv("DTRAIN_VISION_GOLDEN");
  const Json golden = Json::read(folder + "/networks.json");
  for (const Json& expected : golden["networks"]) {
    const std::string name = expected["model"];
    SCOPED_TRACE(name);
    const std::int64_t size = expected["size"];
    Generator generator(0);
    const auto network =
        make_network(name, {.channels = 3, .height = size, .width = size, .classes = 7}, generator, device);
    std::string shapes;
    for (const auto& [tensor, value] : network->state_dict())
      shapes += tensor + " " + value.shape().to_string() + "\n";
    EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(shapes.data()), shapes.size()),
              expected["shapes_crc32"])
        << shapes.substr(0, 1000);
    fill(*network, device);
    std::vector<float> values;
    for (std::int64_t i = 0; i < 2 * 3 * size * size; ++i)
      values.push_back(static_cast<float>(i * 7919 % 509 - 250) / 128);
    const Tensor images = Tensor::from_data(values, {2, 3, size, size}, device);
    const NoGrad no_grad;
    if (name.starts_with("inception")) (*network)(images);  // which moves the running statistics
    network->eval();
    const auto logits = (*network)(images).to_vector<float>();
    const auto wanted = expected["logits"].get<std::vector<double>>();
    ASSERT_EQ(logits.size(), wanted.size());
    double most = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) most = std::max(most, std::abs(logits[i] - wanted[i]));
    EXPECT_LE(most, 1e-4) << "PyTorch, with weights that differ by 1e-7, is " << expected["spread"]
                          << " from itself";
  }
}

TEST(VisionNetworks, HaveTheirParameters) {
  const auto device = make_device("cpu");
  const std::string folder = std::getenv("DTRAIN_VISION_GOLDEN");
  const Json golden = Json::read(folder + "/networks.json");
  for (const Json& expected : golden["networks"]) {
    Generator generator(0);
    const auto network =
        make_network(expected["model"].get<std::string>(),
                     {.channels = 3, .height = 224, .width = 224, .classes = 1000}, generator, device);
    EXPECT_EQ(network->parameter_count(), expected["parameters"]) << expected["model"];
  }
}

TEST(VisionNetworks, WeightsComeInAndGoOutBitForBit) {
  const char* python = std::getenv("DTRAIN_PEER_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "DTRAIN_PEER_PYTHON is not set (a Python with torch, torchvision and timm)";
  const std::string script = std::string(std::getenv("DTRAIN_VISION_GOLDEN")) + "/exchange_networks.py";
  const RunResult exchanged = run({python, script, program("dtrain")}, limited_to(std::chrono::seconds(480)));
  EXPECT_EQ(exchanged.exit_code, 0) << exchanged.out << exchanged.err;
}

}  // namespace
}  // namespace dtrain::test
