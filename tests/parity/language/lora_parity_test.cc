// Adapters learn what PEFT's learn, loss for loss (make_golden.py); merged into the weights they stand beside
// they compute the same, and nothing else of the network has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/transformer.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/nn/trainable.h"
#include "runtime/optim/adamw.h"
#include "tests/parity/language/recorded_model.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::RecordedModel;
using test::relative_difference;
using testing::HasSubstr;

struct Adapted {
  const char *model, *lora;
};

class LoraParity : public testing::TestWithParam<Adapted> {
 protected:
  LoraParity() {
    model_.shape.lora = parse_lora(GetParam().lora);
    format_ = *published_format(model_);
    Generator generator(3);
    network_ = std::make_unique<Transformer>(model_.shape, generator, base_.device());
    load_published(*network_, PublishedWeights::open(base_.publish(dir_, "base", base_.all("weight/"))),
                   format_, "base");
    const auto first = base_.publish(dir_, "first", peft("first/"));
    load_published(*network_, PublishedWeights::open(first), *format_.adapters, "adapters");
  }
  NamedTensors peft(const std::string& prefix) const {
    NamedTensors found;
    for (const SavedTensor& saved : peft_.tensors()) {
      if (!saved.name.starts_with(prefix)) continue;
      found.emplace_back(saved.name.substr(prefix.size()),
                         Tensor::empty(saved.shape, base_.device(), saved.dtype));
      peft_.read(saved.name, found.back().second.view());
    }
    return found;
  }
  Tensor batch(std::int64_t number) const { return base_.read("tokens").select(0, number).contiguous(); }
  Tensor loss(std::int64_t number) const {
    const Tensor tokens = batch(number), out = (*network_)(tokens);
    const std::int64_t length = tokens.size(1);
    return cross_entropy(out.slice(1, 0, length - 1).reshape({-1, out.size(-1)}),
                         tokens.slice(1, 1, length).to(DType::i64).reshape({-1}));
  }
  /// As make_golden.py trains.
  std::vector<double> train() {
    AdamW optimizer(trainable_parameters(*network_),
                    {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
    std::vector<double> losses;
    for (std::int64_t step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const Tensor mean = loss(step % 4);
      mean.backward();
      optimizer.step();
      losses.push_back(mean.item());
    }
    return losses;
  }

  test::TempDir dir_;
  RecordedModel base_{GetParam().model};
  TensorFiles peft_ = TensorFiles::open(std::filesystem::path(DTRAIN_RECORDINGS) /
                                        (std::string("lora_") + GetParam().model + ".safetensors"));
  TextModel model_ = base_.model();
  PublishedFormat format_;
  std::unique_ptr<Module> network_;
};

TEST_P(LoraParity, TrainsAlongPeftsLosses) {
  const NamedTensors frozen = frozen_parameters(*network_);
  std::vector<std::vector<float>> before;
  for (const auto& [name, tensor] : frozen) before.push_back(tensor.to_vector<float>());
  const auto found = train();
  const auto expected = peft("losses")[0].second.to_vector<double>();
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t step = 0; step < found.size(); ++step)
    EXPECT_NEAR(found[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  for (std::size_t i = 0; i < frozen.size(); ++i)
    EXPECT_EQ(frozen[i].second.to_vector<float>(), before[i]) << frozen[i].first;

  const auto out = dir_ / "out";
  const NamedTensors last = peft("last/");
  EXPECT_EQ(write_published(out, network_->state_dict(), *format_.adapters), last.size());
  const TensorFiles written = TensorFiles::open(out / "adapter_model.safetensors");
  for (const auto& [name, tensor] : last) {
    ASSERT_NE(written.find(name), nullptr) << name;
    const Tensor own = Tensor::empty(tensor.shape(), base_.device());
    written.read(name, own.view());
    EXPECT_LE(relative_difference(own, tensor), 1e-3) << name;
  }
  EXPECT_THAT(test::read_file(out / "adapter_config.json"), HasSubstr("\"peft_type\": \"LORA\""));
}

TEST_P(LoraParity, ComputesTheSameWhenMerged) {
  const Tensor untrained = (*network_)(batch(0)).detach();
  train();
  const NoGrad no_grad;
  TextModel plain = model_;
  plain.shape.lora.reset();
  Generator generator(4);
  Transformer merged(plain.shape, generator, base_.device());
  merged.load_state_dict(format_.merged(network_->state_dict()));
  const Tensor expected = (*network_)(batch(0));
  EXPECT_LE(relative_difference(merged(batch(0)), expected), 1e-5);
  EXPECT_GE(relative_difference(untrained, expected), 1e-3) << "it has learned something";
}

INSTANTIATE_TEST_SUITE_P(Families, LoraParity,
                         testing::Values(Adapted{"gpt2", "rank=4,alpha=8,on=qkv+down"},
                                         Adapted{"llama", "rank=4,alpha=16,on=q+v"}));

TEST(Lora, RefusesWhatIsNoAdapter) {
  const auto message = [](const char* text) { return test::message_of([&] { parse_lora(text); }); };
  EXPECT_EQ(parse_lora("rank=4,on=q+v"), (LoraOptions{4, 4, {"q", "v"}}));
  EXPECT_THAT(message("rank=4"), HasSubstr("on=, the layers"));
  EXPECT_THAT(message("rank=0,on=q"), HasSubstr("numbers above 0"));
  EXPECT_THAT(message("rank=1.5,on=q"), HasSubstr("a whole rank"));
  EXPECT_THAT(message("on=q+w"), HasSubstr("layers among q+k+v+qkv+o+gate+up+down"));
  EXPECT_THAT(message("on=q+q"), HasSubstr("each layer"));
  EXPECT_THAT(message("on=q+qkv"), HasSubstr("qkv or some of"));
  EXPECT_THAT(message("size=3,on=q"), HasSubstr("rank=N, alpha=X and on=LAYERS"));
}

}  // namespace
}  // namespace dtrain
