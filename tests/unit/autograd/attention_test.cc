// Attention by its kernel against the way that keeps all scores, where the table of operations does not look:
// low precision, lengths of nothing, dropout, memory.
#include "runtime/autograd/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/rotary.h"
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
void expect_agrees(const std::string& what, const Inputs& inputs, AttentionOptions options,
                   DType dtype = DType::f64, double tolerance = 1e-12) {
  const Found tiles = attend(inputs, options, dtype);
  options.keeps_scores = true;
  const Found all = attend(inputs, options, dtype);
  EXPECT_LE(furthest(all.result, tiles.result), tolerance) << what;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    EXPECT_LE(furthest(all.gradients[i], tiles.gradients[i]), tolerance) << what << ", gradient " << i;
  }
}

TEST(AttentionByTiles, WorksInLowerPrecisionAndWithinRecomputation) {
  const Inputs inputs = {
      random_f64({2, 300, 16}, 1), random_f64({2, 300, 16}, 2), random_f64({2, 300, 16}, 3), {}};
  expect_agrees("f32", inputs, {.causal = true}, DType::f32, 2e-5);
  {
    LowPrecisionWeights weights;
    const Autocast bf16(Precision::bf16, weights);
    expect_agrees("bf16", inputs, {.causal = true}, DType::f32,
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

/// Scores of up to 60, of which bf16 would keep a quarter's places: like the kernel, and PyTorch, the plain
/// way rounds the result alone.
TEST(AttentionByPlainOperations, RoundsNoScoresInLowPrecision) {
  const auto bf16 = [](std::uint64_t seed) {
    return mul(random_f64({2, 40, 16}, seed), 4.0).to(DType::bf16).detach();
  };
  const Inputs low = {bf16(1), bf16(2), bf16(3)};
  const AttentionOptions plain{.keeps_scores = true};
  const auto of = [&plain](const Tensor& q, const Tensor& k, const Tensor& v) {
    return scaled_dot_product_attention(q, k, v, {}, plain);
  };
  const Tensor exact = of(low[0].to(DType::f64), low[1].to(DType::f64), low[2].to(DType::f64));
  const double rounding = amax(abs(exact), {}).item() / 256;
  EXPECT_LE(furthest(of(low[0], low[1], low[2]), exact), rounding);
  LowPrecisionWeights weights;
  const Autocast autocast(Precision::bf16, weights);
  EXPECT_LE(furthest(of(low[0].to(DType::f32), low[1].to(DType::f32), low[2].to(DType::f32)), exact),
            rounding)
      << "under autocast";
}

TEST(AttentionByTiles, GrowsWithTheContextAndNotWithItsSquare) {
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

TEST(AttentionByTiles, AnEntryMayHaveNoKeys) {
  const Inputs inputs = {
      random_f64({2, 2, 150, 4}, 1), random_f64({2, 2, 150, 4}, 2), random_f64({2, 2, 150, 4}, 3), {}};
  const Tensor nothing = Tensor::from_data(std::vector<std::int64_t>{0, 150}, {2}, cpu());
  expect_agrees("an entry without keys", inputs, {.lengths = nothing});
  EXPECT_THROW(
      scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, {.lengths = nothing.to(DType::i32)}),
      UsageError);
}

TEST(AttentionByTiles, OfNoHeadsIsEmpty) {
  for (const bool keeps_scores : {false, true}) {
    for (const std::int64_t query_heads : {0, 1}) {  // one broadcasts to as many as there are keys for
      Inputs x = {Tensor::zeros({2, query_heads, 5, 3}, cpu()), Tensor::zeros({2, 0, 7, 3}, cpu()),
                  Tensor::zeros({2, 0, 7, 4}, cpu())};
      for (Tensor& input : x) input.set_requires_grad(true);
      const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], {}, {.keeps_scores = keeps_scores});
      EXPECT_EQ(y.shape(), Dims({2, 0, 5, 4}));
      y.backward(Tensor::zeros(y.shape(), cpu()));
      for (const Tensor& input : x) EXPECT_EQ(input.grad().shape(), input.shape());
    }
  }
  EXPECT_THROW(
      scaled_dot_product_attention(Tensor::zeros({2, 3, 5, 3}, cpu()), Tensor::zeros({2, 0, 7, 3}, cpu()),
                                   Tensor::zeros({2, 0, 7, 4}, cpu())),
      UsageError);
}

TEST(AttentionByTiles, DropsTheSameWeightsForwardAndBackward) {
  const Inputs inputs = {
      random_f64({2, 2, 37, 4}, 1), random_f64({2, 2, 37, 4}, 2), random_f64({2, 2, 37, 4}, 3), {}};
  AttentionOptions options{.causal = true};
  options.dropout = DroppedWeights{0.3, 5, 1, Tensor::zeros({1}, cpu(), DType::i64)};
  expect_agrees("dropout", inputs, options);
  options.dropout->part = 1;
  expect_agrees("dropout of a part of the heads", inputs, options);
}

TEST(AttentionByTiles, PackedTakesAGradientOfAnyLayout) {
  for (const bool by_group : {false, true}) {
    const Tensor values = random_f64({2, 7, 3 * 8}, 1);
    const Tensor rows = random_f64({2, 7, 1}, 2);
    const auto gradient_of = [&](const Tensor& given) {
      Tensor qkv = values.contiguous().detach();
      qkv.set_requires_grad(true);
      packed_attention(qkv, {.heads = 2, .by_group = by_group}).backward(given);
      return qkv.grad();
    };
    const Tensor broadcast = rows.expand({2, 7, 8}), turned = random_f64({8, 7, 2}, 3).permute({2, 1, 0});
    for (const Tensor& given : {broadcast, turned})
      EXPECT_EQ(furthest(gradient_of(given), gradient_of(given.contiguous())), 0);
  }
}

// Backward reads the masks again: with others than forward had, its gradients would be wrong.
TEST(AttentionErrors, MasksThatWereModifiedAreRefused) {
  Tensor bias = Tensor::zeros({7, 7}, cpu(), DType::f64), lengths = Tensor::full({2}, 7, cpu(), DType::i64),
         segments = Tensor::zeros({2, 7}, cpu(), DType::i32);
  Tensor heads = random_f64({2, 3, 7, 4}, 1), packed = random_f64({2, 7, 12}, 2);
  for (Tensor* input : {&heads, &packed}) input->set_requires_grad(true);
  const AttentionOptions options{.lengths = lengths, .segments = segments};
  for (Tensor* mask : {&bias, &lengths, &segments}) {
    const Tensor y = scaled_dot_product_attention(heads, heads, heads, bias, options);
    const Tensor of_packed = packed_attention(packed, {.heads = 1}, options);
    mask->fill(1);
    EXPECT_THROW(sum(y).backward(), UsageError);
    if (mask == &bias)
      sum(of_packed).backward();  // has none
    else
      EXPECT_THROW(sum(of_packed).backward(), UsageError);
  }
}

TEST(AttentionErrors, NameWhatDoesNotFit) {
  const Tensor query = random_f64({2, 6, 40, 4}, 1);
  EXPECT_THROW(
      scaled_dot_product_attention(query, random_f64({2, 4, 50, 4}, 2), random_f64({2, 4, 50, 3}, 3)),
      UsageError);
  EXPECT_THROW(packed_attention(random_f64({2, 3, 10}, 1), {.heads = 4}), UsageError);
  EXPECT_THROW(rotary_embedding(random_f64({2, 3, 7, 3}, 1), random_f64({7, 2}, 2), random_f64({7, 2}, 3)),
               UsageError);
}

}  // namespace
}  // namespace dtrain
