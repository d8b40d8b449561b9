// Labels that are probabilities: PyTorch's loss, accuracy by the likeliest class, and what is refused.
#include "models/tasks/soft_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/tasks/classification.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/collectives/fake_communicator.h"
#include "tests/unit/data/npy_files.h"
#include "training/engine/evaluate.h"

namespace dtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<float> kLogits = {0.5, -1, 2, 0, 0.25, -0.75, 1.5, 1, -2};
const std::vector<float> kLabels = {0.2F, 0.3F, 0.5F, 1, 0, 0, 0.25F, 0.5F, 0.25F};

// torch.nn.functional.cross_entropy(logits, labels, weight=[1, 4.5, 0.5], label_smoothing=...) in float64.
TEST(SoftLabels, LossAndGradientAreTorchs) {
  const struct {
    double smoothing;
    bool weighed;
    double loss;
    std::vector<double> gradient;
  } cases[] = {
      {0,
       false,
       1.357644339019581,
       {-0.00823653595, -0.0869624756, 0.0951990115, -0.212402298, 0.155278522, 0.0571237761, 0.120325017,
        -0.043141633, -0.077183384}},
      {0.1,
       false,
       1.3801443390195807,
       {-0.0126809804, -0.0880735867, 0.100754567, -0.190180076, 0.144167411, 0.0460126649, 0.117547239,
        -0.0375860775, -0.0799611618}},
      {0,
       true,
       2.8847060595164837,
       {0.0385075686, -0.426532456, 0.388024887, -0.212402298, 0.155278522, 0.0571237761, 0.451269836,
        -0.425746787, -0.0255230498}},
      {0.1,
       true,
       2.9155420991465295,
       {0.0352317268, -0.431271706, 0.396039979, -0.178086973, 0.120806375, 0.0572805981, 0.435763412,
        -0.408467101, -0.0272963105}},
  };
  const auto device = make_device("cpu");
  for (const auto& [smoothing, weighed, loss, gradient] : cases) {
    const Classification task(
        "mlp", {.smoothing = smoothing,
                .class_weights = weighed ? std::vector<float>{1, 4.5, 0.5} : std::vector<float>()});
    Tensor logits = Tensor::from_data(kLogits, {3, 3}, device);
    logits.set_requires_grad(true);
    const std::vector<Field> fields = {{.name = "label", .shape = {3}}};
    const BatchTensors batch(fields, {Tensor::from_data(kLabels, {3, 3}, device)});
    const Tensor got = task.loss({logits}, batch);
    EXPECT_NEAR(got.item(), loss, 1e-6) << smoothing << " " << weighed;
    got.backward();
    const auto values = logits.grad().to_vector<float>();
    ASSERT_EQ(values.size(), gradient.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], gradient[i], 1e-6) << i;
  }
}

// torch.nn.functional.cross_entropy(logits, [0, 2, 1], weight=[1, 4.5, 0.5], label_smoothing=0.1) in float64:
// the mean is over weights there, and over samples where these are mixed.
TEST(SoftLabels, WeightsAndSmoothingOfClassesAreTorchs) {
  const auto device = make_device("cpu");
  const SoftTargets targets{.smoothing = 0.1, .class_weights = {1, 4.5, 0.5}};
  const std::vector<Field> fields = {{.name = "label", .dtype = DType::i64, .values = 3}};
  const Tensor labels = Tensor::from_data({std::int64_t{0}, std::int64_t{2}, std::int64_t{1}}, {3}, device);
  const BatchTensors batch(fields, {labels});
  Tensor logits = Tensor::from_data(kLogits, {3, 3}, device);
  logits.set_requires_grad(true);
  const Tensor got = Classification("mlp", targets).loss({logits}, batch);
  EXPECT_NEAR(got.item(), 1.2232161383189182, 1e-6);
  got.backward();
  const float wanted[] = {-0.123418984F,  -0.0178293616F, 0.141248345F,  0.0337470308F, 0.0254655198F,
                          -0.0592125506F, 0.427218439F,   -0.437509304F, 0.0102908645F};
  EXPECT_THAT(logits.grad().to_vector<float>(), ::testing::Pointwise(::testing::FloatNear(1e-6F), wanted));
  EXPECT_TRUE(Classification("mlp", targets).units_vary(fields));
  SoftTargets mixed = targets;
  mixed.mixing.mixup = 0.2;
  EXPECT_FALSE(Classification("mlp", mixed).units_vary(fields));
}

class SoftLabelFiles : public ::testing::Test {
 protected:
  Splits open(const std::string& dataset) const {
    return Classification("mlp").open({.dataset = dataset, .data_dir = folder_.path().string()});
  }
  void write(const std::string& name, const std::string& content) const {
    test::write_file(folder_ / name, content);
  }
  test::TempDir folder_;
};

TEST_F(SoftLabelFiles, TablesAndArraysHaveTheSameAndAccuracyIsOfTheLikeliest) {
  write("t.csv", "a,cat,b,dog,bird\n1,0.2,5,0.3,0.5\n2,1,6,0,0\n3,0.25,7,0.5,0.25\n4,0.5,8,0.5,0\n");
  write("x.npy", test::npy_bytes("<f4", "(4, 2)", std::vector<float>{1, 5, 2, 6, 3, 7, 4, 8}));
  std::vector<double> labels(kLabels.begin(), kLabels.end());
  labels.insert(labels.end(), {0.5, 0.5, 0});
  write("label.npy", test::npy_bytes("<f8", "(4, 3)", labels));
  for (const std::string dataset : {"csv:t.csv,label=cat+dog+bird,test=t.csv,scale=standard",
                                    "npy:x=x.npy,label=label.npy,test.x=x.npy,test.label=label.npy"}) {
    const Splits splits = open(dataset);
    EXPECT_EQ(describe(splits.test->fields()), "x float32 [2], label float32 [3]");
    if (dataset.starts_with("csv")) {
      EXPECT_THAT(splits.test->fields()[1].columns, ElementsAre("cat", "dog", "bird"));
      EXPECT_TRUE(splits.test->fields()[1].mean.empty()) << "probabilities are no measurements";
    }
    const Classification task("mlp");
    EXPECT_EQ(task.predicted_field(splits.test->fields()), nullptr);
    EXPECT_FALSE(Classification("mlp", {.class_weights = {1, 2, 3}}).units_vary(splits.test->fields()));
    test::FakeCommunicator communicator(1);
    const auto network = [](const Tensors& inputs) {
      std::vector<float> logits;  // of the rows that there are, by their first number
      for (const float first : inputs[0].select(1, 0).to_vector<float>()) {
        const auto row = static_cast<std::size_t>(first < 0 ? 0 : first - 1);
        const float own[][3] = {{0.5, -1, 2}, {0, 0.25, -0.75}, {1.5, 1, -2}, {1, 0, 0}};
        logits.insert(logits.end(), std::begin(own[row % 4]), std::end(own[row % 4]));
      }
      return Tensors{Tensor::from_data(logits, {inputs[0].size(0), 3}, inputs[0].shared_device())};
    };
    for (const std::int64_t batch : {1, 3, 4}) {
      const Evaluation found =
          evaluate(task, network, splits.test, {.batch_size = batch, .patience = std::chrono::seconds(30)},
                   communicator, make_device("cpu"));
      EXPECT_EQ(found["accuracy"], 0.5) << "bird and the first of two that are equal; not cat and dog";
      EXPECT_NEAR(found.loss, (3 * 1.357644339019581 + 1.0514446889) / 4, 1e-6);
      EXPECT_FALSE(found.confusion);
    }
  }
}

TEST_F(SoftLabelFiles, WhatAreNoProbabilitiesIsRefused) {
  write("t.csv", "a,p,q\n1,0.2,0.8\n2,0.5,0.4\n");
  write("negative.csv", "a,p,q\n1,0.2,0.8\n2,1.5,-0.5\n");
  write("good.csv", "a,p,q,r\n1,0.2,0.8,3\n2,0.5,0.5004,4\n");
  EXPECT_THAT(message_of([&] { open("csv:t.csv,label=p+q,test=t.csv"); }),
              AllOf(HasSubstr("t.csv"), HasSubstr("label of sample 1 to be the probabilities of 2 classes"),
                    HasSubstr("found 0.5, 0.4, together 0.9")));
  EXPECT_THAT(message_of([&] { open("csv:negative.csv,label=p+q,test=t.csv"); }),
              HasSubstr("found 1.5, -0.5"));
  EXPECT_EQ(message_of([&] { open("csv:good.csv,label=p+q,without=r,test=good.csv"); }), "no error");
  EXPECT_THAT(message_of([&] { open("csv:good.csv,label=p+q,target=r,test=good.csv"); }),
              HasSubstr("either target=COL+COL or the columns of classes' probabilities"));
  EXPECT_THAT(message_of([&] { open("csv:good.csv,label=p+q,split=0.5,stratify=yes"); }),
              HasSubstr("samples without classes"));
  // Numbers to be predicted are no labels.
  const Splits splits = open("csv:good.csv,target=p+q,test=good.csv");
  Generator generator(0);
  EXPECT_THAT(
      message_of([&] { Classification("mlp").build(splits.train->fields(), generator, make_device("cpu")); }),
      AllOf(HasSubstr("or their probabilities, float32 [classes]"), HasSubstr("y float32 [2]")));
  EXPECT_THAT(message_of([&] {
                Classification("mlp", {.class_weights = {1, 2, 3}})
                    .build(open("csv:good.csv,label=p+q,test=good.csv").train->fields(), generator,
                           make_device("cpu"));
              }),
              HasSubstr("a weight for each of 2 classes, got 3"));
}

}  // namespace
}  // namespace dtrain
