// What is looked at before it is saved or taken over: parameters, buffers that are finite when new, state.
#include "training/loop/finite_check.h"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/nn/layers.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A layer with a mask of minus infinity, and a buffer that is a number.
class Masked final : public Module {
 public:
  explicit Masked(const std::shared_ptr<Device>& device) {
    Generator generator(1);
    add_module("fc", std::make_shared<Linear>(2, 2, generator, device));
    add_buffer("mask", Tensor::full({2}, -kInfinity, device));
    add_buffer("mean", Tensor::zeros({2}, device));
  }
  Tensor forward(const Tensor& x) override { return x; }
};

class FiniteCheckTest : public testing::Test {
 protected:
  FiniteCheckTest() { check_.take_new(network_); }
  Tensor named(const std::string& name) const {
    for (const auto& [each, tensor] : network_.state_dict())
      if (each == name) return tensor.detach();
    return {};
  }
  std::optional<std::string> found() const {
    return check_.find(RankState{whole(network_.state_dict()), {}});
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
  Masked network_{device_};
  FiniteCheck check_{device_};
};

TEST_F(FiniteCheckTest, NamesWhatIsNotFinite) {
  EXPECT_FALSE(found()) << "a mask is meant to be what it is";
  for (const char* name : {"fc.weight", "fc.bias", "mean"}) {
    const Tensor tensor = named(name).flatten().slice(0, 1, 2);
    const float before = tensor.to_vector<float>()[0];
    Tensor(tensor).fill(kInfinity);
    EXPECT_EQ(found(), name);
    Tensor(tensor).fill(before);
  }
  const RankState state{{}, whole({{"fc.bias.momentum_buffer", Tensor::full({1}, kInfinity, device_)}})};
  EXPECT_EQ(check_.find(state), "fc.bias.momentum_buffer");
  EXPECT_FALSE(check_.find(RankState()));
}

TEST_F(FiniteCheckTest, NamesWhatIsNotFiniteInACheckpoint) {
  const test::TempDir folder;
  NullLog log;
  CheckpointStore store(folder.path(), 0, log);
  const RankState parts{whole(network_.state_dict()), {}};
  TrainingState state;
  for (const float value : {1.0F, kInfinity}) {
    ++state.step;
    Tensor(named("fc.bias")).fill(value);
    store.save({state, views_of(parts.model), {}});
  }
  const CheckpointTest unusable = [this](const Checkpoint& checkpoint) { return check_.find(checkpoint); };
  EXPECT_EQ(unusable(*store.latest()), "fc.bias is not finite");
  EXPECT_EQ(store.latest(unusable)->state.step, 1);
}

}  // namespace
}  // namespace dtrain
