// Mixup, cutmix and soft targets must be torchvision's, batches bit for bit (golden.json, written by
// make_golden.py); and what is drawn for a batch depends on its first sample alone.
#include "models/tasks/mixing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/data/sources/synthetic_source.h"
#include "tests/support/json.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::Json;
using testing::HasSubstr;

constexpr std::int64_t kBatch = 5, kHeight = 12, kWidth = 17, kClasses = 7;

std::vector<float> numbers(std::int64_t count, std::int64_t factor) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * factor % 509 - 250) / 64);
  return values;
}

std::vector<Json> cases() {
  std::vector<Json> all;
  const Json golden = Json::read(std::getenv("DTRAIN_MIXING"));
  for (const Json& c : golden["cases"]) all.push_back(c);
  return all;
}

class MixingParity : public testing::Test {
 protected:
  /// Undefined where nothing is mixed.
  Tensor mixture(const Json& c) const {
    if (c["kind"] == "none") return {};
    const Mixture m = c["kind"] == "mixup" ? mixup_of(c["share"].get<double>())
                                           : cutmix_of(c["share"].get<double>(), c["x"].get<std::int64_t>(),
                                                       c["y"].get<std::int64_t>(), kWidth, kHeight);
    std::vector<float> rows(kBatch * Mixture::kNumbers, 0.25F);  // only the first row counts
    const float first[] = {m.own, m.other, m.left, m.top, m.right, m.bottom, m.own_label, m.other_label};
    std::ranges::copy(first, rows.begin());
    return Tensor::from_data(rows, {kBatch, Mixture::kNumbers}, device_);
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
  Tensor images_ =
      Tensor::from_data(numbers(kBatch * 3 * kHeight * kWidth, 7919), {kBatch, 3, kHeight, kWidth}, device_);
  Tensor labels_ = Tensor::from_data(std::vector<std::int64_t>{3, 0, 6, 3, 1}, {kBatch}, device_);
};

TEST_F(MixingParity, BatchesToTheLastBit) {
  int mixtures = 0;
  for (const Json& c : cases()) {
    if (c["kind"] == "none") continue;
    const Tensor batch = mixed(images_, mixture(c)).contiguous();
    EXPECT_EQ(crc32_z(0, batch.view().as<Bytef>(), static_cast<std::size_t>(batch.numel()) * sizeof(float)),
              c["crc32"])
        << c["kind"] << " " << c["share"];
    ++mixtures;
  }
  EXPECT_EQ(mixtures, 8);
}

TEST_F(MixingParity, LossAndGradient) {
  for (const Json& c : cases()) {
    Tensor logits = Tensor::from_data(numbers(kBatch * kClasses, 311), {kBatch, kClasses}, device_);
    logits.set_requires_grad(true);
    const Tensor m = mixture(c);
    const Tensor loss =
        soft_cross_entropy(logits, labels_, m.defined() ? &m : nullptr, c["smoothing"].get<double>());
    EXPECT_NEAR(loss.item(), c["loss"].get<double>(), 1e-6 * std::abs(c["loss"].get<double>())) << c["kind"];
    loss.backward();
    const std::vector<float> got = logits.grad().to_vector<float>();
    const auto expected = c["gradient"].get<std::vector<double>>();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 1e-7) << c["kind"] << " " << i;
  }
}

TEST(Mixing, ABatchOfOneStaysAsItIs) {
  const auto device = make_device("cpu");
  const Tensor one = Tensor::from_data(std::vector<float>{1, -2, 3}, {1, 3}, device);
  const Mixture m = mixup_of(0.25);
  const Tensor row = Tensor::from_data(
      std::vector<float>{m.own, m.other, 0, 0, 0, 0, m.own_label, m.other_label}, {1, 8}, device);
  EXPECT_EQ(mixed(one, row).to_vector<float>(), one.to_vector<float>());
}

// Mean 1/2, variance 1 / (4 (2 alpha + 1)).
TEST(Mixing, SharesAreOfTheBetaDistribution) {
  for (const double alpha : {0.01, 0.2, 1.0, 4.0}) {
    constexpr int kDraws = 40'000;
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      KeyedGenerator generator(3, 0, static_cast<std::uint64_t>(i));
      const double share = draw_share(alpha, generator);
      ASSERT_TRUE(share >= 0 && share <= 1) << share;
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 0.25 / (2 * alpha + 1);
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 0.03 * variance) << alpha;
  }
}

const SyntheticSpec kSamples{{3, 8, 6}, 4, 40};

std::shared_ptr<const Source> mixed_samples(const Mixing& mixing) {
  return std::make_shared<MixedSource>(std::make_shared<SyntheticSource>("made", kSamples, 1), 0, mixing);
}

std::vector<float> mixture_of(const Source& source, std::int64_t index, std::uint64_t epoch = 0) {
  std::vector<float> image(3 * 8 * 6), mixture(Mixture::kNumbers);
  std::int64_t label = 0;
  const View views[] = {{image.data(), DType::f32, {3, 8, 6}, {48, 6, 1}},
                        {&label, DType::i64, {}, {}},
                        {mixture.data(), DType::f32, {Mixture::kNumbers}, {1}}};
  KeyedGenerator generator(5, epoch, static_cast<std::uint64_t>(index));
  source.read(index, views, generator);
  return mixture;
}

TEST(MixedSource, DrawsByTheKeyAlone) {
  const auto source = mixed_samples({.mixup = 0.4, .cutmix = 1});
  EXPECT_EQ(mixture_of(*source, 3), mixture_of(*source, 3));
  EXPECT_NE(mixture_of(*source, 3), mixture_of(*source, 3, 1));
  EXPECT_NE(mixture_of(*source, 3), mixture_of(*source, 4));
}

TEST(MixedSource, DrawsMixupOrCutmixAsAsked) {
  int cut = 0;
  for (std::int64_t i = 0; i < kSamples.samples; ++i) {
    const auto up = mixture_of(*mixed_samples({.mixup = 0.4}), i),
               box = mixture_of(*mixed_samples({.cutmix = 1}), i);
    EXPECT_EQ(up[4] - up[2], 0);
    EXPECT_FLOAT_EQ(up[0] + up[1], 1);
    EXPECT_EQ(up[0], up[6]);
    EXPECT_EQ(box[0], 1);
    EXPECT_TRUE(box[2] >= 0 && box[4] <= 6 && box[3] >= 0 && box[5] <= 8);
    EXPECT_FLOAT_EQ(box[7], (box[4] - box[2]) * (box[5] - box[3]) / 48);
    cut += mixture_of(*mixed_samples({.mixup = 0.4, .cutmix = 1}), i)[0] == 1 ? 1 : 0;
  }
  EXPECT_TRUE(cut > 5 && cut < 35) << cut;
}

TEST(MixedSource, RefusesWhatCannotBeMixed) {
  const auto samples = std::make_shared<SyntheticSource>("made", kSamples, 1);
  EXPECT_THAT(test::message_of([&] { MixedSource(samples, 1, {.mixup = 1}); }),
              testing::AllOf(HasSubstr("--mixup"), HasSubstr("label int64")));
  EXPECT_THAT(test::message_of([&] { MixedSource(samples, 1, {.cutmix = 1}); }),
              testing::AllOf(HasSubstr("--cutmix"), HasSubstr("[C, H, W]")));
}

}  // namespace
}  // namespace dtrain
