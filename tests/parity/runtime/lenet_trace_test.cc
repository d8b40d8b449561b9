// Forty steps of LeNet on Fashion-MNIST beside PyTorch's losses.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <utility>

#include "runtime/optim/sgd.h"
#include "tests/parity/runtime/lenet.h"
#include "tests/support/lenet_trace.h"

namespace dtrain {
namespace {

constexpr const char* kData = "/usr/share/datasets/fashion-mnist";
constexpr std::int64_t kSamples = 60000, kPixels = 28 * 28;

std::vector<std::uint8_t> read_idx(const std::string& name, std::size_t header, std::size_t bytes) {
  const std::string path = std::string(kData) + "/" + name;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot read " + path);
  std::vector<std::uint8_t> content(header + bytes);
  const int got = gzread(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  if (got != static_cast<int>(content.size())) throw std::runtime_error(path + " is too short");
  content.erase(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(header));
  return content;
}

/// The training set in memory.
struct FashionMnist {
  std::vector<std::uint8_t> pixels = read_idx("train-images-idx3-ubyte.gz", 16, kSamples* kPixels);
  std::vector<std::uint8_t> labels = read_idx("train-labels-idx1-ubyte.gz", 8, kSamples);

  Tensor images(const std::vector<std::int64_t>& indices, const std::shared_ptr<Device>& device) const {
    std::vector<float> values;
    values.reserve(indices.size() * kPixels);
    for (const std::int64_t index : indices) {
      for (std::int64_t p = 0; p < kPixels; ++p) {
        values.push_back(static_cast<float>(pixels[static_cast<std::size_t>(index * kPixels + p)]) / 255.0F);
      }
    }
    return Tensor::from_data(values, {static_cast<std::int64_t>(indices.size()), 1, 28, 28}, device);
  }
  Tensor classes(const std::vector<std::int64_t>& indices, const std::shared_ptr<Device>& device) const {
    std::vector<std::int64_t> values;
    for (const std::int64_t index : indices) values.push_back(labels[static_cast<std::size_t>(index)]);
    return Tensor::from_data(values, {static_cast<std::int64_t>(indices.size())}, device);
  }
};

/// The samples of step `step` on all ranks: DistributedSampler's order without padding, since world sizes 1,
/// 2 and 3 divide 60,000.
std::vector<std::int64_t> global_batch(const std::vector<std::int64_t>& order, std::int64_t world,
                                       std::int64_t batch, std::int64_t step) {
  std::vector<std::int64_t> indices;
  const std::int64_t each = batch / world;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    for (std::int64_t i = step * each; i < (step + 1) * each; ++i) {
      indices.push_back(order[static_cast<std::size_t>(i * world + rank)]);
    }
  }
  return indices;
}

struct Trace {
  std::vector<double> losses;
  NamedTensors state;
};

Trace run_trace(const test::Golden& expected, std::uint64_t seed, const FashionMnist& data,
                std::int64_t steps, bool fused) {
  const auto device = make_device("cpu");
  Generator generator(seed), sampler(seed);
  test::LeNet net(generator, device, fused);
  SgdOptions options;
  options.lr = expected["lr"];
  options.momentum = expected["momentum"];
  options.weight_decay = expected["weight_decay"];
  options.nesterov = expected["nesterov"];
  Sgd optimizer(net.named_parameters(), options);
  const auto order = sampler.permutation(kSamples);
  Trace trace;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto batch = global_batch(order, expected["world"], expected["global_batch"], step);
    const Tensor loss = cross_entropy(net(data.images(batch, device)), data.classes(batch, device));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    trace.losses.push_back(loss.item());
  }
  trace.state = net.state_dict();
  return trace;
}

/// Which trace, and whether convolution, relu and pooling are one operation.
using TraceCase = std::pair<std::size_t, bool>;

class LeNetTrace : public testing::TestWithParam<TraceCase> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kData)) {
      GTEST_SKIP() << kData << " is not there (package dataset-fashion-mnist)";
    }
  }
};

// Only the third trace is compared to its end.
TEST_P(LeNetTrace, LossesFollowPyTorch) {
  const test::Golden golden(DTRAIN_GOLDEN);
  const test::Golden expected = golden["trace_lenet"][GetParam().first];
  const bool to_the_end = GetParam().first == 2;
  const std::int64_t steps = to_the_end ? 40 : 15;
  const auto losses = expected["losses"].get<std::vector<double>>();
  const Trace trace = run_trace(expected, golden["seed"], FashionMnist(), steps, GetParam().second);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto i = static_cast<std::size_t>(step);
    EXPECT_NEAR(trace.losses[i], losses[i], test::lenet_loss_bound(i, expected["lr"])) << "step " << step;
  }
  if (!to_the_end) return;
  for (const auto& [name, tensor] : trace.state) {
    double sum = 0;
    for (const float value : tensor.to_vector<float>()) sum += value;
    EXPECT_NEAR(sum, expected["final_sums"][name].get<double>(), 2e-2) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, LeNetTrace,
                         testing::Values(TraceCase{0, true}, TraceCase{2, true}, TraceCase{2, false},
                                         TraceCase{3, true}));

}  // namespace
}  // namespace dtrain
