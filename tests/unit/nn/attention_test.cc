// Attention with several heads against loops in double, groups that share keys, masks, what its features'
// order promises to ranks; and rotary angles.
#include "runtime/nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const std::shared_ptr<Device>& cpu() {
  static const auto device = make_device("cpu");
  return device;
}

Tensor drawn(const Dims& shape, std::uint64_t seed) {
  Generator generator(seed);
  return Tensor::randn(shape, generator, cpu());
}

/// attend_heads() of one batch by the definition; `mask` [L, L] or empty.
std::vector<double> by_loops(const Tensor& fused, const HeadShape& shape, bool causal,
                             const std::vector<double>& mask) {
  const std::int64_t batch = fused.size(0), length = fused.size(1), width = shape.head_width;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const auto x = fused.to_vector<double>();
  const auto at = [&](std::int64_t b, std::int64_t l, std::int64_t slot, std::int64_t e) {
    return x[static_cast<std::size_t>((b * length + l) * shape.fused_width() + slot * width + e)];
  };
  std::vector<double> out;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t l = 0; l < length; ++l) {
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t first = head / group * (group + 2), query = first + head % group;
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t s = 0; s < length; ++s) {
          double score = mask.empty() ? 0 : mask[static_cast<std::size_t>(l * length + s)];
          for (std::int64_t e = 0; e < width; ++e)
            score += at(b, l, query, e) * at(b, s, first + group, e) / std::sqrt(static_cast<double>(width));
          weights.push_back(causal && s > l ? 0 : std::exp(score));
          sum += weights.back();
        }
        for (std::int64_t e = 0; e < width; ++e) {
          double value = 0;
          for (std::int64_t s = 0; s < length; ++s)
            value += weights[static_cast<std::size_t>(s)] / sum * at(b, s, first + group + 1, e);
          out.push_back(value);
        }
      }
    }
  }
  return out;
}

void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance) {
  const auto values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], tolerance) << i;
}

TEST(AttendHeads, IsTheDefinitionForAnyNumberOfSharedKeys) {
  for (const std::int64_t keys : {1, 2, 4}) {
    const HeadShape shape{.heads = 4, .kv_heads = keys, .head_width = 6};
    const Tensor fused = drawn({2, 5, shape.fused_width()}, 1);
    std::vector<float> mask(25);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<float>(i % 7) / 3;
    for (const bool causal : {false, true}) {
      expect_near(attend_heads(fused, shape, {.causal = causal}), by_loops(fused, shape, causal, {}), 2e-6);
      expect_near(attend_heads(fused, shape,
                               {.causal = causal, .mask = Tensor::from_data(mask, {1, 1, 5, 5}, cpu())}),
                  by_loops(fused, shape, causal, {mask.begin(), mask.end()}), 2e-6);
    }
  }
}

TEST(AttendHeads, OfASliceOfGroupsIsASliceOfTheWhole) {
  const HeadShape whole{.heads = 4, .kv_heads = 2, .head_width = 3},
      half{.heads = 2, .kv_heads = 1, .head_width = 3};
  const Tensor fused = drawn({2, 4, whole.fused_width()}, 2);
  const auto expected = attend_heads(fused, whole, {}).slice(2, 6, 12).to_vector<float>();
  EXPECT_EQ(attend_heads(fused.slice(2, 12, 24).contiguous(), half, {}).to_vector<float>(), expected);
}

TEST(AttendHeads, WithACacheGoesOnWhereEachRowIs) {
  const NoGrad no_grad;
  const HeadShape shape{.heads = 4, .kv_heads = 2, .head_width = 4};
  const RotaryEmbedding rotary(8, 4, cpu());
  const Tensor fused = drawn({2, 6, shape.fused_width()}, 3);
  const auto expected = attend_heads(fused, shape, {.rotary = &rotary});
  KeyValueCache cache(2, 6, shape, cpu());
  // The first row has 4 tokens, the other 2 and padding.
  attend_heads(fused.slice(1, 0, 4).contiguous(), shape, {.rotary = &rotary, .cache = &cache});
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::vector<std::int64_t> at = {4 + step, 2 + step};
    const Tensor next =
        stack({fused.select(0, 0).slice(0, at[0], at[0] + 1), fused.select(0, 1).slice(0, at[1], at[1] + 1)});
    const Tensor got = attend_heads(
        next, shape, {.rotary = &rotary, .cache = &cache, .positions = Tensor::from_data(at, {2, 1}, cpu())});
    for (std::int64_t row = 0; row < 2; ++row) {
      const auto right =
          expected.select(0, row).select(0, at[static_cast<std::size_t>(row)]).to_vector<double>();
      expect_near(got.select(0, row), right, 2e-6);
    }
  }
}

TEST(SelfAttention, LearnsAndRefusesWhatDoesNotDivide) {
  Generator generator(1);
  SelfAttention attention(12, 4, generator, cpu(), {.kv_heads = 2, .qkv_bias = false, .causal = true});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : attention.named_parameters())
    names.push_back(name + tensor.shape().to_string());
  EXPECT_THAT(names, testing::ElementsAre("qkv.weight[24, 12]", "proj.weight[12, 12]", "proj.bias[12]"));
  const Tensor x = drawn({2, 5, 12}, 4);
  const Tensor mask = Tensor::full({1, 1, 1, 5}, 0, cpu());
  EXPECT_EQ(attention(x).to_vector<float>(), attention(Tensors{x, mask})[0].to_vector<float>());
  sum(square(attention(x))).backward();
  for (const auto& [name, tensor] : attention.named_parameters())
    EXPECT_TRUE(tensor.grad().defined()) << name;
  EXPECT_THAT(test::message_of([&] { SelfAttention(12, 5, generator, cpu()); }),
              HasSubstr("heads that divide the width"));
  EXPECT_THAT(test::message_of([&] { SelfAttention(12, 4, generator, cpu(), {.kv_heads = 3}); }),
              HasSubstr("4 heads, 3 keys and a width of 12"));
  EXPECT_THAT(test::message_of([&] { attend_heads(x, {.heads = 2, .kv_heads = 2, .head_width = 3}, {}); }),
              HasSubstr("expected [B, L, 18], got float32 [2, 5, 12]"));
}

TEST(RotaryEmbedding, MakesScoresOfDistances) {
  const RotaryEmbedding rotary(32, 8, cpu());
  const Tensor query = drawn({1, 8}, 5), key = drawn({1, 8}, 6);
  const auto score = [&](std::int64_t i, std::int64_t j) {
    return sum(mul(rotary(query, i), rotary(key, j))).item();
  };
  EXPECT_NEAR(score(7, 3), score(24, 20), 1e-5);
  EXPECT_GT(std::abs(score(7, 3) - score(7, 4)), 1e-3);
  EXPECT_EQ(rotary(query).to_vector<float>(), query.to_vector<float>()) << "position 0 turns by nothing";
}

TEST(RotaryEmbedding, TurnsHalvesByTheAnglesOfTheirPosition) {
  const RotaryEmbedding rotary(16, 4, cpu());
  const std::vector<float> x = {1, 2, 3, 4};
  const auto got = rotary(Tensor::from_data(x, {1, 4}, cpu()), 5).to_vector<double>();
  for (const std::size_t i : {0U, 1U}) {
    const double angle = 5 * std::pow(10000.0, -static_cast<double>(i) / 2);
    EXPECT_NEAR(got[i], x[i] * std::cos(angle) - x[i + 2] * std::sin(angle), 1e-6);
    EXPECT_NEAR(got[i + 2], x[i + 2] * std::cos(angle) + x[i] * std::sin(angle), 1e-6);
  }
}

TEST(RotaryEmbedding, AtGivenPositionsIsAsAtThoseInOrder) {
  const RotaryEmbedding rotary(16, 4, cpu());
  const Tensor x = drawn({2, 3, 5, 4}, 7);
  const std::vector<std::int64_t> at = {3, 4, 5, 6, 7, 0, 1, 2, 3, 4};
  const Tensor got = rotary(x, Tensor::from_data(at, {2, 5}, cpu()));
  EXPECT_EQ(got.select(0, 0).to_vector<float>(), rotary(x.select(0, 0), 3).to_vector<float>());
  EXPECT_EQ(got.select(0, 1).to_vector<float>(), rotary(x.select(0, 1), 0).to_vector<float>());
}

TEST(RotaryEmbedding, ScalesLongWavesAsLlama3Does) {
  // Waves of 2π · 10000^(2i / 8): 6.3, 62.8, 628 and 6283 positions, of 200 at first.
  const RotaryScaling scaling{.factor = 4, .low_factor = 1, .high_factor = 4, .original_positions = 200};
  const RotaryEmbedding rotary(8, 8, cpu(), {.scaling = scaling});
  const double wave = 2 * M_PI * 10, share = (200 / wave - 1) / 3;
  const std::vector<double> turns = {1, (1 - share) * 0.1 / 4 + share * 0.1, 0.01 / 4, 0.001 / 4};
  const auto got = rotary(Tensor::from_data(std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0}, {1, 8}, cpu()), 3);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(got.to_vector<double>()[i + 4], std::sin(3 * turns[i]), 1e-6) << i;
}

TEST(RotaryEmbedding, RefusesWhatItHasNoAnglesFor) {
  EXPECT_THAT(test::message_of([] { RotaryEmbedding(8, 5, cpu()); }),
              HasSubstr("heads of an even width, got 8 and 5"));
  const RotaryEmbedding rotary(8, 4, cpu());
  EXPECT_THAT(test::message_of([&] { rotary(drawn({9, 4}, 1)); }), HasSubstr("at most 8 positions"));
  EXPECT_THAT(test::message_of([&] { rotary(drawn({2, 4}, 1), 7); }), HasSubstr("from position 7 on"));
}

}  // namespace
}  // namespace dtrain
