// Segmentation: what the loss is a mean over, and what evaluation counts; and the first five of many classes.
#include "models/tasks/segmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/tasks/built_in.h"
#include "models/tasks/classification.h"
#include "models/tasks/count_right.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/unit/collectives/fake_communicator.h"
#include "training/engine/evaluate.h"

namespace dtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Three classes; of sample i all four pixels have the numbers of kMasks[i].
constexpr std::int64_t kMasks[][4] = {{0, 0, 1, -1}, {1, 1, 1, 1}, {-1, -1, -1, -1}};

class Masked final : public Source {
 public:
  std::string name() const override { return "masked"; }
  std::int64_t size() const noexcept override { return 3; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& /*unused*/) const override {
    for (std::int64_t i = 0; i < 4; ++i) {
      outputs[0].as<float>()[i] = static_cast<float>(index);
      outputs[1].as<std::int64_t>()[i] = kMasks[index][i];
    }
  }

 private:
  std::vector<Field> fields_ = {
      {.name = "image", .shape = {1, 2, 2}},
      {.name = "mask", .dtype = DType::i64, .shape = {2, 2}, .values = 3, .has_none = true}};
};

/// Predicts class 0 in the first row and class 1 in the second.
Tensors rows_of_classes_of(const Tensors& inputs) {
  Tensor logits = Tensor::zeros({inputs[0].size(0), 3, 2, 2}, inputs[0].shared_device());
  logits.select(1, 0).select(1, 0).fill(2);
  logits.select(1, 1).select(1, 1).fill(2);
  return {logits};
}

TEST(Segmentation, EvaluationCountsPixelsThatHaveAClass) {
  const Segmentation task("fcn-resnet50");
  for (const std::int64_t batch : {1, 2, 3}) {
    test::FakeCommunicator communicator(1);
    const Evaluation found = evaluate(task, rows_of_classes_of, std::make_shared<const Masked>(),
                                      {.batch_size = batch, .patience = std::chrono::seconds(30)},
                                      communicator, make_device("cpu"));
    EXPECT_EQ(found.samples, 3);
    // Class 0: 2 right, 2 of class 1 taken for it; class 1: 3 of 5 right. Class 2 is nowhere.
    EXPECT_DOUBLE_EQ(found["mean_iou"], (2.0 / 4 + 3.0 / 5) / 2);
    EXPECT_DOUBLE_EQ(found["pixel_accuracy"], 5.0 / 7);
    const double all = std::log(std::exp(2.0) + 2);
    EXPECT_NEAR(found.loss, (5 * (all - 2) + 2 * all) / 7, 1e-6);
    ASSERT_TRUE(found.confusion.has_value());
    EXPECT_EQ(found.confusion->counts, (std::vector<std::int64_t>{2, 0, 0, 2, 3, 0, 0, 0, 0}));
    EXPECT_TRUE(found.confusion->worst.empty());
  }
}

TEST(Segmentation, NeedsAMaskLikeTheImageAndANetworkForIt) {
  const Segmentation task("fcn-resnet50");
  Generator generator(0);
  const auto refusal = [&](const std::vector<Field>& fields) {
    return message_of([&] { task.build(fields, generator, make_device("cpu")); });
  };
  const Field image{.name = "image", .shape = {3, 32, 32}};
  Field mask{.name = "mask", .dtype = DType::i64, .shape = {32, 16}, .values = 3, .has_none = true};
  EXPECT_THAT(refusal({image, mask}), HasSubstr("the same height and width"));
  EXPECT_THAT(refusal({image, {.name = "label", .dtype = DType::i64, .values = 3}}),
              AllOf(HasSubstr("a field mask"), HasSubstr("label int64 []")));
  mask.values = 0;
  EXPECT_THAT(refusal({image, mask}), HasSubstr("of 1 to 1000 classes"));
  EXPECT_EQ(default_task("fcn-resnet50"), "segmentation");
  EXPECT_THAT(message_of([] { make_task("classification", "fcn-resnet50"); }),
              AllOf(HasSubstr("expected segmentation"), HasSubstr("'classification'")));
  EXPECT_THAT(message_of([] { make_task("segmentation", "resnet50"); }),
              AllOf(HasSubstr("expected classification or regression"), HasSubstr("resnet50")));
}

TEST(TopFive, CountsLabelsAmongTheLargest) {
  const auto device = make_device("cpu");
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits = Tensor::from_data(
      std::vector<float>{5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6, kNone, 1, 1, 1, 1, 1, 0, kNone, kNone, 1, 2, 3},
      {4, 6}, device);
  const auto counted = [&](std::vector<std::int64_t> labels, std::int64_t count) {
    return count_among_first(logits, Tensor::from_data(labels, {4}, device), count);
  };
  EXPECT_EQ(counted({0, 5, 0, 5}, 1), 2) << "what is no number is never right, and goes in front";
  EXPECT_EQ(counted({1, 3, 1, 4}, 2), 2);
  EXPECT_EQ(counted({5, 0, 1, 0}, 6), 4);
  EXPECT_EQ(counted({4, 1, 0, 3}, 5), 3);
}

TEST(TopFive, IsReportedOfManyClasses) {
  const Classification task("mlp");
  const auto report = [&](std::int64_t classes) {
    const auto source =
        task.open({.dataset = "synthetic:1x2x2," + std::to_string(classes) + ",300", .data_dir = ""}).test;
    test::FakeCommunicator communicator(1);
    return evaluate(
        task,
        [&](const Tensors& inputs) {
          Tensor logits = Tensor::zeros({inputs[0].size(0), classes}, inputs[0].shared_device());
          logits.slice(1, 0, 5).fill(1);
          return Tensors{logits};
        },
        source, {.batch_size = 7, .patience = std::chrono::seconds(30)}, communicator, make_device("cpu"));
  };
  EXPECT_THROW(report(99)["top5_accuracy"], UsageError);
  const Evaluation found = report(100);
  std::int64_t first_five = 0;
  for (std::size_t label = 0; label < 5; ++label) {
    for (std::size_t guess = 0; guess < 100; ++guess)
      first_five += found.confusion->counts[100 * label + guess];
  }
  EXPECT_GT(first_five, 0);
  EXPECT_DOUBLE_EQ(found["top5_accuracy"], static_cast<double>(first_five) / 300);
}

}  // namespace
}  // namespace dtrain
