// Layers split among ranks against the unsplit network: outputs, losses, gradients, weights after
// training, and state that goes to and from the unsplit one at any width. Ranks are threads.
#include "parallel/tensor/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/thread_ranks.h"
#include "runtime/autograd/gradients.h"
#include "runtime/base/error.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/norms.h"
#include "runtime/optim/adamw.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/split_network.h"

namespace dtrain {
namespace {

using test::Split;
using testing::HasSubstr;

constexpr std::int64_t kWidth = 16, kHidden = 24, kWords = 40;
const Deadline kNever = Deadline::never();

Tensor words(std::uint64_t seed, const std::shared_ptr<Device>& device) {
  return test::words(seed, kWords, device);
}

/// Embedding, a norm, two blocks of two layers with a sum around each, a norm, a classifier of words.
class Whole final : public Module {
 public:
  explicit Whole(const std::shared_ptr<Device>& device) {
    Generator generator(5);
    words_ = add_module("words", std::make_shared<Embedding>(kWords, kWidth, generator, device));
    norm_ = add_module("norm", std::make_shared<LayerNorm>(Dims{kWidth}, device));
    for (int i = 0; i < 2; ++i) {
      const std::string block = "block" + std::to_string(i);
      up_.push_back(add_module(block + "_up", std::make_shared<Linear>(kWidth, kHidden, generator, device)));
      down_.push_back(
          add_module(block + "_down", std::make_shared<Linear>(kHidden, kWidth, generator, device)));
    }
    out_ = add_module("out", std::make_shared<Linear>(kWidth, kWords, generator, device));
  }
  Tensor forward(const Tensor& index) override {
    Tensor h = (*words_)(index);
    for (std::size_t i = 0; i < up_.size(); ++i) h = add(h, (*down_[i])(gelu((*up_[i])((*norm_)(h)))));
    return (*out_)(h);
  }
  Tensor loss(const Tensor& index, const Tensor& target) {
    return cross_entropy((*this)(index).reshape({-1, kWords}), target.reshape({-1}));
  }

 private:
  std::shared_ptr<Embedding> words_;
  std::shared_ptr<LayerNorm> norm_;
  std::vector<std::shared_ptr<Linear>> up_, down_;
  std::shared_ptr<Linear> out_;
};

void expect_near(const Tensor& got, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << ", element " << i;
}

/// Gradients of this rank's parameters in the place of the parameters, gathered.
NamedTensors gathered_gradients(Module& network, const RankGroup& group) {
  const auto split = split_parameters(network);
  NamedTensors whole;
  for (const auto& [name, tensor] : network.named_parameters()) {
    const auto cut = split.find(name);
    const Tensor grad = tensor.grad().detach();
    whole.emplace_back(name, cut == split.end() ? grad : gather_alike(grad, cut->second.dim, group, name));
  }
  return whole;
}

struct Case {
  int ranks;
  bool sequence;
};

class SplitNetwork : public testing::TestWithParam<Case> {};

TEST_P(SplitNetwork, TrainsAsTheWholeOne) {
  const auto& [ranks, sequence] = GetParam();
  NullLog log;
  run_thread_ranks(ranks, {}, log, [sequence = sequence](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(30)};
    Whole whole(device);
    Split split(device, group, sequence);
    for (const auto& [name, tensor] : gather_state(split, group)) {
      for (const auto& [other, expected] : whole.state_dict()) {
        if (name == other) {
          EXPECT_EQ(tensor.to_vector<float>(), expected.to_vector<float>()) << name << " at the start";
        }
      }
    }
    AdamW one(whole.named_parameters(), {.lr = 0.01}), other(split.named_parameters(), {.lr = 0.01});
    for (int step = 0; step < 10; ++step) {
      const Tensor index = words(step, device), target = words(100U + static_cast<unsigned>(step), device);
      whole.zero_grad(), split.zero_grad();
      const Tensor expected = whole.loss(index, target), got = split.loss(index, target);
      ASSERT_NEAR(got.item(), expected.item(), 1e-5) << "step " << step;
      expected.backward();
      got.backward();
      if (step == 0) {
        const NamedTensors mine = gathered_gradients(split, group), theirs = whole.named_parameters();
        ASSERT_EQ(mine.size(), theirs.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          ASSERT_EQ(mine[i].first, theirs[i].first);
          expect_near(mine[i].second, theirs[i].second.grad(), 1e-6, "gradient of " + mine[i].first);
        }
      }
      one.step(), other.step();
    }
    const NamedTensors mine = gather_state(split, group), theirs = whole.state_dict();
    for (std::size_t i = 0; i < mine.size(); ++i)
      expect_near(mine[i].second, theirs[i].second, 1e-4, mine[i].first + " after ten steps");
    communicator.barrier("end")->wait(kNever);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, SplitNetwork,
                         testing::Values(Case{1, false}, Case{2, false}, Case{4, false}, Case{8, false},
                                         Case{1, true}, Case{2, true}, Case{4, true}, Case{8, true}));

// What one width trained, another width and the unsplit network take over.
TEST(SplitState, GoesToAnyWidth) {
  NullLog log;
  NamedTensors saved;
  const auto home = make_device("cpu");
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(30)};
    Split split(device, group, false);
    AdamW optimizer(split.named_parameters(), {.lr = 0.05});
    split.loss(words(1, device), words(2, device)).backward();
    optimizer.step();
    const NamedTensors state = gather_state(split, group);
    if (communicator.rank() == 0) {
      for (const auto& [name, tensor] : state) saved.emplace_back(name, tensor.clone().to(home));
    }
  });
  Whole whole(home);
  whole.load_state_dict(saved);
  const double expected = whole.loss(words(3, home), words(4, home)).item();
  EXPECT_NE(expected, Whole(home).loss(words(3, home), words(4, home)).item());
  run_thread_ranks(4, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(30)};
    Split split(device, group, true);
    NamedTensors here;
    for (const auto& [name, tensor] : saved) here.emplace_back(name, tensor.to(device));
    load_split(split, here, group);
    EXPECT_NEAR(split.loss(words(3, device), words(4, device)).item(), expected, 1e-5);
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(SplitLayers, GatherTheirOutput) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(30)};
    Generator a(1), b(1), c(2);
    Linear whole(6, 10, a, device);
    ColumnParallelLinear split(6, 10, b, device, group, "fc", {.gather_output = true});
    Tensor x = Tensor::randn({4, 6}, c, device);
    const Tensor expected = whole(x), got = split(x);
    expect_near(got, expected, 1e-6, "output");
    sum(mul(got, got)).backward();
    sum(mul(expected, expected)).backward();
    const NamedTensors mine = gathered_gradients(split, group);
    expect_near(mine[0].second, whole.named_parameters()[0].second.grad(), 1e-5, "weight");
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(SplitLayers, RefuseWhatCannotBeCut) {
  NullLog log;
  run_thread_ranks(3, {}, log, [](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(30)};
    Generator generator(1);
    EXPECT_THAT(test::message_of([&] { ColumnParallelLinear(6, 10, generator, device, group, "fc"); }),
                HasSubstr("a multiple of the 3 ranks"));
    EXPECT_THAT(test::message_of([&] { RowParallelLinear(10, 6, generator, device, group, "fc"); }),
                HasSubstr("RowParallelLinear: expected dimension 1 of weight"));
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(SplitLayers, RefuseWordsThatNoRankHas) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(30)};
    Split split(device, group, false);
    const Tensor good = words(3, device), logits = split(good).detach();
    for (const std::int64_t word : {std::int64_t{-1}, kWords, INT64_MAX, INT64_MIN}) {
      Tensor bad = good.clone();
      bad.slice(0, 0, 1).slice(1, 2, 3).copy_from(Tensor::from_data({word}, {1, 1}, device));
      const std::string named = "got " + std::to_string(word);
      EXPECT_THAT(test::message_of([&] { split(bad); }), HasSubstr(named));
      EXPECT_THAT(test::message_of([&] { Split::loss_of(logits, bad, group); }), HasSubstr(named));
    }
    communicator.barrier("end")->wait(kNever);
  });
}

}  // namespace
}  // namespace dtrain
