// timm's and torchvision's networks: their names, shapes and numbers, with weights that a formula gives
// (make_networks.py).
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "models/vision/network.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/optim/sgd.h"
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
  const bool is_matrix = shape.rank() == 2 || shape.rank() == 4 || shape.rank() == 5;
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

/// Numbers from -2 to 2, as fed() in make_networks.py.
Tensor fed(const Dims& shape, std::int64_t first, const std::shared_ptr<Device>& device) {
  std::vector<float> values;
  for (std::int64_t i = first; i < first + shape.product(); ++i)
    values.push_back(static_cast<float>(i * 7919 % 509 - 250) / 128);
  return Tensor::from_data(values, shape, device);
}

/// Two images, or clips of so many frames.
Tensor images_for(std::int64_t frames, std::int64_t size, const std::shared_ptr<Device>& device) {
  return fed(frames > 0 ? Dims{2, frames, 3, size, size} : Dims{2, 3, size, size}, 0, device);
}

/// Of the logits, those that were recorded.
void expect_logits(const Tensor& logits, const Json& expected, double tolerance) {
  const auto all = logits.to_vector<float>();
  const auto wanted = expected["logits"].get<std::vector<double>>();
  const auto every = expected["every"].get<std::size_t>();
  ASSERT_EQ((all.size() + every - 1) / every, wanted.size());
  double most = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) most = std::max(most, std::abs(all[i * every] - wanted[i]));
  EXPECT_LE(most, tolerance) << "PyTorch, with weights that differ by rounding, is " << expected["spread"]
                             << " from itself";
}

/// The network that `expected` is of, from seed 0.
std::unique_ptr<Module> network_of(const Json& expected, const std::shared_ptr<Device>& device) {
  const std::string name = expected["model"];
  const std::int64_t size = expected["size"], frames = expected["frames"];
  Generator generator(0);
  return make_network(name, {.channels = 3, .height = size, .width = size, .classes = 7, .frames = frames},
                      generator, device);
}

TEST(VisionNetworks, AreTheirsWithAnyWeights) {
  const auto device = make_device("cpu");
  const std::string folder = std::getenv("DTRAIN_VISION_GOLDEN");
  const Json golden = Json::read(folder + "/networks.json");
  for (const Json& expected : golden["networks"]) {
    SCOPED_TRACE(expected["model"].get<std::string>());
    const std::int64_t size = expected["size"], frames = expected["frames"];
    const auto network = network_of(expected, device);
    std::string shapes;
    for (const auto& [tensor, value] : network->state_dict())
      shapes += tensor + " " + value.shape().to_string() + "\n";
    EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(shapes.data()), shapes.size()),
              expected["shapes_crc32"])
        << shapes.substr(0, 1000);
    fill(*network, device);
    const Tensor images = images_for(frames, size, device);
    const NoGrad no_grad;
    if (!network->named_buffers().empty()) (*network)(images);  // which moves the running statistics
    network->eval();
    const auto wanted = expected["logits"].get<std::vector<double>>();
    const double largest =
        std::abs(*std::ranges::max_element(wanted, {}, [](double x) { return std::abs(x); }));
    expect_logits((*network)(images), expected, 1e-4 * std::max(largest, 1.0));
  }
}

// The weights are PyTorch's but for the rounding of normal numbers (1e-6): the bound is ten times what that
// makes of PyTorch's own logits ("spread").
TEST(VisionNetworks, AreTheirsFromTheSeedToTheLogits) {
  const auto device = make_device("cpu");
  const Json golden = Json::read(std::string(std::getenv("DTRAIN_VISION_GOLDEN")) + "/networks.json");
  for (const Json& expected : golden["seeded"]) {
    SCOPED_TRACE(expected["model"].get<std::string>());
    const std::int64_t size = expected["size"], frames = expected["frames"];
    const auto network = network_of(expected, device);
    const NoGrad no_grad;
    const Tensor images = images_for(frames, size, device);
    (*network)(images);
    network->eval();
    expect_logits((*network)(images), expected, 10 * expected["spread"].get<double>());
  }
}

TEST(VisionNetworks, HaveTheirParameters) {
  const auto device = make_device("cpu");
  const std::string folder = std::getenv("DTRAIN_VISION_GOLDEN");
  const Json golden = Json::read(folder + "/networks.json");
  for (const Json& expected : golden["networks"]) {
    Generator generator(0);
    const auto network = make_network(expected["model"].get<std::string>(),
                                      {.channels = 3,
                                       .height = 224,
                                       .width = 224,
                                       .classes = 1000,
                                       .frames = expected["frames"].get<std::int64_t>()},
                                      generator, device);
    EXPECT_EQ(network->parameter_count(), expected["parameters"]) << expected["model"];
  }
}

/// As mixed() in make_networks.py, times `reach`.
Tensor mixed(const Dims& shape, std::uint64_t first, float reach, const std::shared_ptr<Device>& device) {
  std::vector<float> values(static_cast<std::size_t>(shape.product()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t z = (i + first) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    values[i] = static_cast<float>(static_cast<double>(z >> 40) / (1 << 23) - 1) * reach;
  }
  return Tensor::from_data(values, shape, device);
}

/// As fill_to_learn() there.
void fill_to_learn(Module& network, const std::shared_ptr<Device>& device) {
  const NoGrad no_grad;
  for (auto& [name, tensor] : network.named_parameters()) {
    if (tensor.rank() == 2 || tensor.rank() == 5) {
      double fan_in = 1;
      for (int i = 1; i < tensor.rank(); ++i) fan_in *= static_cast<double>(tensor.size(i));
      const auto seed = crc32_z(0, reinterpret_cast<const Bytef*>(name.data()), name.size());
      Tensor(tensor).copy_from(
          mixed(tensor.shape(), seed, static_cast<float>(std::sqrt(6.0 / fan_in)), device));
    } else if (name == "fc.bias") {
      Tensor(tensor).copy_from(Tensor::zeros(tensor.shape(), device));
    }
  }
}

// Parity bounds: rounding grows from step to step through batch norm, in PyTorch, too. Its float32 is from
// its float64 as is recorded (1e-7 at first, 5e-3 by step 15); ours may be further when another ReLU is the
// first to take the other side.
TEST(VisionNetworks, ClipsAreLearnedAsByTorchvision) {
  const auto device = make_device("cpu");
  const Json golden = Json::read(std::string(std::getenv("DTRAIN_VISION_GOLDEN")) + "/clips.json");
  const std::int64_t clips = golden["clips"], frames = golden["frames"], size = golden["size"],
                     classes = golden["classes"];
  Generator generator(0);
  const auto network = make_network(
      "r3d-18", {.channels = 3, .height = size, .width = size, .classes = classes, .frames = frames},
      generator, device);
  fill_to_learn(*network, device);
  Sgd optimizer(network->named_parameters(), {.lr = golden["lr"], .momentum = golden["momentum"]});
  const auto exact = golden["float64"].get<std::vector<double>>();
  const auto single = golden["float32"].get<std::vector<double>>();
  ASSERT_EQ(exact.size(), 20U);
  double apart = 2e-7;
  for (std::size_t step = 0; step < exact.size(); ++step) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < clips; ++i)
      labels.push_back((i * 3 + static_cast<std::int64_t>(step)) % classes);
    const Tensor x = mixed({clips, frames, 3, size, size}, step * 1000003, 2, device);
    const Tensor loss = cross_entropy((*network)(x), Tensor::from_data(labels, {clips}, device));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    apart = std::max(apart, std::abs(single[step] - exact[step]));
    EXPECT_NEAR(loss.item(), exact[step], 16 * apart) << "step " << step + 1;
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
