// Texts that are padded to one length: nothing is computed beyond the longest of a batch, and nothing changes
// by it.
#include "models/tasks/text_classification.h"

#include <gtest/gtest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/random.h"

namespace dtrain {
namespace {

constexpr std::int64_t kLength = 8;

class Padded : public ::testing::Test {
 protected:
  Padded() {
    TextModel model = text_model("bert-tiny");
    model.shape.padding = 0;
    task_ = std::make_unique<TextClassification>(model);
    Generator generator(1);
    network_ = task_->build(fields_, generator, device_);
    network_->eval();
  }

  BatchTensors batch(const std::vector<std::int32_t>& tokens, std::span<const Field> fields) const {
    const auto rows = static_cast<std::int64_t>(tokens.size()) / kLength;
    std::vector<Tensor> tensors = {Tensor::from_data(tokens, {rows, kLength}, device_),
                                   Tensor::zeros({rows}, device_, DType::i64)};
    if (fields.size() == 3) tensors.push_back(Tensor::full({rows, kLength}, 1, device_, DType::i64));
    return {fields, std::move(tensors)};
  }
  std::vector<float> logits(const Tensors& inputs) const {
    const NoGrad no_grad;
    return network_->forward_all(inputs)[0].to_vector<float>();
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
  std::vector<Field> fields_{{.name = "tokens", .dtype = DType::i32, .shape = {kLength}, .values = 300},
                             {.name = "label", .dtype = DType::i64, .shape = {}, .values = 3}};
  std::unique_ptr<TextClassification> task_;
  std::unique_ptr<Module> network_;
};

TEST_F(Padded, IsNotComputedBeyondTheLongestText) {
  const std::vector<std::int32_t> tokens = {5, 6, 0, 0, 0, 0, 0, 0, 7, 0, 8, 9, 0, 0, 0, 0};
  const BatchTensors given = batch(tokens, fields_);
  const Tensors inputs = task_->inputs(given);
  ASSERT_EQ(inputs.size(), 3U);
  for (const Tensor& input : inputs) EXPECT_EQ(input.shape(), (Dims{2, 4}));
  EXPECT_EQ(inputs[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{5, 6, 0, 0, 7, 0, 8, 9}));
  EXPECT_EQ(inputs[2].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 1, 0, 0, 1, 0, 1, 1}));

  std::vector<std::int64_t> seen;
  for (const std::int32_t token : tokens) seen.push_back(token == 0 ? 0 : 1);
  const Tensor all = given["tokens"].to(DType::i64);
  const std::vector<float> got = logits(inputs),
                           expected = logits({all, Tensor::zeros_like(all),
                                              Tensor::from_data(seen, {2, kLength}, device_)});
  ASSERT_EQ(got.size(), 6U);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

TEST_F(Padded, SegmentsAreCutAlike) {
  std::vector<Field> fields = fields_;
  fields.push_back({.name = "segments", .dtype = DType::i64, .shape = {kLength}});
  const Tensors inputs = task_->inputs(batch({5, 6, 7, 0, 0, 0, 0, 0}, fields));
  EXPECT_EQ(inputs[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 1, 1}));
}

TEST_F(Padded, TextsOfNoTokenKeepOneAndFullOnesAll) {
  EXPECT_EQ(task_->inputs(batch(std::vector<std::int32_t>(16, 0), fields_))[0].shape(), (Dims{2, 1}));
  EXPECT_EQ(task_->inputs(batch(std::vector<std::int32_t>(16, 3), fields_))[0].shape(), (Dims{2, kLength}));
}

}  // namespace
}  // namespace dtrain
