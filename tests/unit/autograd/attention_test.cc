// Attention of many queries, block by block, against the way that keeps all scores: results, gradients,
// memory.
#include "runtime/autograd/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using test::cpu;
using test::random_f64;

/// Query, key, value, and a mask that may be undefined.
using Inputs = std::vector<Tensor>;

struct Found {
  Tensor result;
  Inputs gradients;
};

Found attend(const Inputs& given, AttentionOptions options, DType dtype) {
  Inputs x;
  for (const Tensor& input : given) {
    x.push_back(input.defined() ? input.to(dtype).contiguous().detach() : input);
    if (input.defined()) x.back().set_requires_grad(true);
  }
  Found found{scaled_dot_product_attention(x[0], x[1], x[2], x[3], options), {}};
  sum(mul(found.result, random_f64(found.result.shape(), 9).to(found.result.dtype()))).backward();
  for (const Tensor& input : x) found.gradients.push_back(input.defined() ? input.grad() : input);
  return found;
}

double furthest(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const auto x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i] - y[i]) <= most)) most = std::abs(x[i] - y[i]);
  }
  return most;
}

/// Sums of up to some hundred terms of size 1, in another order.
void expect_blocks_agree(const std::string& what, const Inputs& inputs, bool causal, DType dtype = DType::f64,
                         double tolerance = 1e-12) {
  const Found all = attend(inputs, {.causal = causal, .keeps_scores = true}, dtype);
  const Found blocks = attend(inputs, {.causal = causal}, dtype);
  EXPECT_LE(furthest(all.result, blocks.result), tolerance) << what;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    EXPECT_LE(furthest(all.gradients[i], blocks.gradients[i]), tolerance) << what << ", gradient " << i;
  }
}

/// Keys from `lengths[b]` on are hidden from batch entry b: [B, 1, 1, keys].
Tensor padding(const std::vector<std::int64_t>& lengths, std::int64_t keys) {
  std::vector<double> mask;
  for (const std::int64_t length : lengths) {
    for (std::int64_t j = 0; j < keys; ++j)
      mask.push_back(j < length ? 0 : -std::numeric_limits<double>::infinity());
  }
  return Tensor::from_data(mask, {static_cast<std::int64_t>(lengths.size()), 1, 1, keys}, cpu());
}

TEST(AttentionByBlocks, GivesWhatAllScoresAtOnceGive) {
  for (const bool causal : {false, true}) {
    const std::string what = causal ? "causal" : "all keys";
    expect_blocks_agree(
        what, {random_f64({2, 300, 5}, 1), random_f64({2, 300, 5}, 2), random_f64({2, 300, 3}, 3), {}},
        causal);
    expect_blocks_agree(what + ", fewer keys",
                        {random_f64({300, 4}, 1), random_f64({70, 4}, 2), random_f64({70, 4}, 3), {}},
                        causal);
    expect_blocks_agree(what + ", more keys",
                        {random_f64({260, 4}, 1), random_f64({400, 4}, 2), random_f64({400, 4}, 3), {}},
                        causal);
  }
}

TEST(AttentionByBlocks, TakesMasks) {
  const Inputs qkv = {random_f64({2, 2, 300, 4}, 1), random_f64({2, 2, 310, 4}, 2),
                      random_f64({2, 2, 310, 4}, 3)};
  for (const bool causal : {false, true}) {
    expect_blocks_agree("padding of keys", {qkv[0], qkv[1], qkv[2], padding({310, 17}, 310)}, causal);
    expect_blocks_agree("a bias", {qkv[0], qkv[1], qkv[2], random_f64({2, 300, 310}, 4)}, causal);
    expect_blocks_agree("one row", {qkv[0], qkv[1], qkv[2], random_f64({310}, 4)}, causal);
  }
}

TEST(AttentionByBlocks, SharesKeysAmongGroupsOfQueries) {
  expect_blocks_agree("three queries a key",
                      {random_f64({2, 2, 3, 280, 4}, 1),
                       random_f64({2, 2, 1, 280, 4}, 2),
                       random_f64({2, 2, 1, 280, 4}, 3),
                       {}},
                      true);
}

TEST(AttentionByBlocks, WorksInLowerPrecisionAndWithinRecomputation) {
  const Inputs inputs = {
      random_f64({2, 300, 16}, 1), random_f64({2, 300, 16}, 2), random_f64({2, 300, 16}, 3), {}};
  expect_blocks_agree("f32", inputs, true, DType::f32, 2e-5);
  {
    LowPrecisionWeights weights;
    const Autocast bf16(Precision::bf16, weights);
    expect_blocks_agree("bf16", inputs, true, DType::f32,
                        0.03);  // a few roundings to 8 bits of values below 2
  }
  Tensor x = inputs[0].contiguous().detach(), again = x.detach();
  const auto attention = [](const Tensor& t) {
    return scaled_dot_product_attention(t, t, t, {}, {.causal = true});
  };
  x.set_requires_grad(true);
  sum(square(attention(x))).backward();
  again = inputs[0].contiguous().detach();
  again.set_requires_grad(true);
  sum(square(recomputed(attention, again, {}))).backward();
  EXPECT_LE(furthest(x.grad(), again.grad()), 1e-12);
}

TEST(AttentionByBlocks, GrowsWithTheContextAndNotWithItsSquare) {
  const auto kept = [](std::int64_t context) {
    Inputs x;
    for (std::uint64_t seed : {1, 2, 3}) {
      x.push_back(random_f64({1, context, 4}, seed));
      x.back().set_requires_grad(true);
    }
    const std::size_t before = cpu()->allocated_bytes();
    const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = true});
    return cpu()->allocated_bytes() - before;
  };
  EXPECT_LE(kept(2048), 2.2 * static_cast<double>(kept(1024)));
  EXPECT_LE(kept(2048), 2048u * 2048u) << "an eighth of the scores";
}

TEST(AttentionByBlocks, SaysThatItsGradientsHaveNone) {
  const auto second = [](bool keeps_scores) {
    Tensor x = random_f64({257, 2}, 1);
    x.set_requires_grad(true);
    const std::vector<Tensor> of = {x};
    const Tensor y = sum(scaled_dot_product_attention(x, x, x, {}, {.keeps_scores = keeps_scores}));
    const Tensor first = gradients(y, of, {}, {.create_graph = true})[0];
    return gradients(sum(square(first)), of)[0];
  };
  EXPECT_NO_THROW(second(true));
  EXPECT_THROW(second(false), UsageError);
}

}  // namespace
}  // namespace dtrain
