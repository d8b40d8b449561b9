// Attention by its kernel against the way that keeps all scores: results, gradients, gradients of gradients,
// memory.
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
void expect_agrees_with(const std::string& what, const Inputs& inputs, AttentionOptions options,
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

void expect_agrees(const std::string& what, const Inputs& inputs, bool causal, DType dtype = DType::f64,
                   double tolerance = 1e-12) {
  expect_agrees_with(what, inputs, {.causal = causal}, dtype, tolerance);
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

/// f64 [rows, pairs] of angles that differ.
Tensor table_of(std::int64_t rows, std::int64_t pairs, double (*function)(double)) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * pairs; ++i) values.push_back(function(0.3 * static_cast<double>(i)));
  return Tensor::from_data(values, {rows, pairs}, cpu());
}
Tensor cos_of(std::int64_t rows, std::int64_t pairs) { return table_of(rows, pairs, std::cos); }
Tensor sin_of(std::int64_t rows, std::int64_t pairs) { return table_of(rows, pairs, std::sin); }

TEST(AttentionByTiles, GivesWhatAllScoresGive) {
  for (const bool causal : {false, true}) {
    const std::string what = causal ? "causal" : "all keys";
    expect_agrees(what,
                  {random_f64({2, 300, 5}, 1), random_f64({2, 300, 5}, 2), random_f64({2, 300, 3}, 3), {}},
                  causal);
    expect_agrees(what + ", fewer keys",
                  {random_f64({300, 4}, 1), random_f64({70, 4}, 2), random_f64({70, 4}, 3), {}}, causal);
    expect_agrees(what + ", more keys",
                  {random_f64({260, 4}, 1), random_f64({400, 4}, 2), random_f64({400, 4}, 3), {}}, causal);
  }
}

TEST(AttentionByTiles, TakesMasks) {
  const Inputs qkv = {random_f64({2, 2, 300, 4}, 1), random_f64({2, 2, 310, 4}, 2),
                      random_f64({2, 2, 310, 4}, 3)};
  for (const bool causal : {false, true}) {
    expect_agrees("padding of keys", {qkv[0], qkv[1], qkv[2], padding({310, 17}, 310)}, causal);
    expect_agrees("a bias", {qkv[0], qkv[1], qkv[2], random_f64({2, 300, 310}, 4)}, causal);
    expect_agrees("one row", {qkv[0], qkv[1], qkv[2], random_f64({310}, 4)}, causal);
  }
}

TEST(AttentionByTiles, SharesKeysAmongGroupsOfQueries) {
  expect_agrees("three queries a key",
                {random_f64({2, 2, 3, 280, 4}, 1),
                 random_f64({2, 2, 1, 280, 4}, 2),
                 random_f64({2, 2, 1, 280, 4}, 3),
                 {}},
                true);
}

TEST(AttentionByTiles, WorksInLowerPrecisionAndWithinRecomputation) {
  const Inputs inputs = {
      random_f64({2, 300, 16}, 1), random_f64({2, 300, 16}, 2), random_f64({2, 300, 16}, 3), {}};
  expect_agrees("f32", inputs, true, DType::f32, 2e-5);
  {
    LowPrecisionWeights weights;
    const Autocast bf16(Precision::bf16, weights);
    expect_agrees("bf16", inputs, true, DType::f32,
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

TEST(AttentionByTiles, SharesKeysAmongNeighbouringHeads) {
  const Inputs inputs = {
      random_f64({2, 6, 40, 4}, 1), random_f64({2, 2, 50, 4}, 2), random_f64({2, 2, 50, 3}, 3), {}};
  expect_agrees("three heads a key", inputs, true);
  const Tensor repeated =
      scaled_dot_product_attention(inputs[0].reshape({2, 2, 3, 40, 4}), inputs[1].unsqueeze(2),
                                   inputs[2].unsqueeze(2), {}, {.causal = true});
  EXPECT_LE(furthest(repeated.reshape({2, 6, 40, 3}),
                     scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, {.causal = true})),
            0);
  EXPECT_THROW(
      scaled_dot_product_attention(inputs[0], random_f64({2, 4, 50, 4}, 2), random_f64({2, 4, 50, 3}, 3)),
      UsageError);
}

TEST(AttentionByTiles, EndsWithLengthsAndDocuments) {
  const Inputs inputs = {
      random_f64({2, 2, 150, 4}, 1), random_f64({2, 2, 150, 4}, 2), random_f64({2, 2, 150, 4}, 3), {}};
  std::vector<std::int32_t> documents;
  for (std::int32_t i = 0; i < 300; ++i) documents.push_back(i / 35);
  const Tensor lengths = Tensor::from_data(std::vector<std::int64_t>{90, 150}, {2}, cpu());
  const Tensor segments = Tensor::from_data(documents, {2, 150}, cpu());
  for (const bool causal : {false, true}) {
    expect_agrees_with("lengths", inputs, {.causal = causal, .lengths = lengths});
    expect_agrees_with("documents", inputs, {.causal = causal, .segments = segments});
  }
  const Tensor nothing = Tensor::from_data(std::vector<std::int64_t>{0, 150}, {2}, cpu());
  expect_agrees_with("an entry without keys", inputs, {.lengths = nothing});
  EXPECT_THROW(
      scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, {.lengths = lengths.to(DType::i32)}),
      UsageError);
}

TEST(AttentionByTiles, DropsTheSameWeightsForwardAndBackward) {
  const Inputs inputs = {
      random_f64({2, 2, 37, 4}, 1), random_f64({2, 2, 37, 4}, 2), random_f64({2, 2, 37, 4}, 3), {}};
  AttentionOptions options{.causal = true};
  options.dropout = DroppedWeights{0.3, 5, 1, Tensor::zeros({1}, cpu(), DType::i64)};
  expect_agrees_with("dropout", inputs, options);
  options.dropout->part = 1;
  expect_agrees_with("dropout of a part of the heads", inputs, options);
}

TEST(AttentionByTiles, TakesQueriesKeysAndValuesSideBySide) {
  for (const bool by_group : {false, true}) {
    Tensor qkv = random_f64({2, 40, 6 * 4 + 2 * 2 * 4}, 1), apart = qkv.clone();
    qkv.set_requires_grad(true);
    apart.set_requires_grad(true);
    const Tensor weights = random_f64({2, 40, 24}, 2);
    const Tensor packed =
        packed_attention(qkv, {.heads = 6, .key_heads = 2, .by_group = by_group}, {.causal = true});
    sum(mul(packed, weights)).backward();
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return apart.slice(2, first * 4, (first + count) * 4).reshape({2, 40, count, 4}).transpose(1, 2);
    };
    const Tensor rows = apart.reshape({2, 40, 2, 5, 4}).transpose(1, 2);
    const Tensor query =
        by_group ? rows.slice(3, 0, 3).permute({0, 1, 3, 2, 4}).reshape({2, 6, 40, 4}) : heads(0, 6);
    const Tensor key = by_group ? rows.select(3, 3) : heads(6, 2),
                 value = by_group ? rows.select(3, 4) : heads(8, 2);
    const Tensor seen =
        scaled_dot_product_attention(query, key, value, {}, {.causal = true, .keeps_scores = true});
    const Tensor expected = seen.transpose(1, 2).reshape({2, 40, 24});
    sum(mul(expected, weights)).backward();
    EXPECT_LE(furthest(packed, expected), 1e-12) << by_group;
    EXPECT_LE(furthest(qkv.grad(), apart.grad()), 1e-12) << by_group;
  }
  EXPECT_THROW(packed_attention(random_f64({2, 3, 10}, 1), {.heads = 4}), UsageError);
}

TEST(AttentionByTiles, HasGradientsOfGradients) {
  const auto second = [](bool keeps_scores, bool packs) {
    Tensor x = random_f64({1, 20, 6}, 1);
    x.set_requires_grad(true);
    const std::vector<Tensor> of = {x};
    AttentionOptions options{.causal = true, .keeps_scores = keeps_scores};
    const Tensor part = x.slice(2, 0, 2), other = x.slice(2, 2, 4), last = x.slice(2, 4, 6);
    const Tensor y = packs ? packed_attention(x, {.heads = 1}, options)
                           : scaled_dot_product_attention(part, other, last, {}, options);
    const Tensor first = gradients(sum(square(y)), of, {}, {.create_graph = true})[0];
    return gradients(sum(square(first)), of)[0];
  };
  const Tensor expected = second(true, false);
  EXPECT_LE(furthest(second(false, false), expected), 1e-11);
  EXPECT_LE(furthest(second(false, true), expected), 1e-11);
}

TEST(Rotary, TurnsPairsAndTurnsGradientsBack) {
  const Tensor cosines = cos_of(7, 2), sines = sin_of(7, 2);
  for (const bool interleaved : {false, true}) {
    Tensor x = random_f64({2, 3, 7, 5}, 1);  // the fifth feature stays
    x.set_requires_grad(true);
    const Tensor y = rotary_embedding(x, cosines, sines, interleaved);
    const auto turned = y.to_vector<double>(), given = x.to_vector<double>();
    const auto c = cosines.to_vector<double>(), s = sines.to_vector<double>();
    for (std::size_t row = 0; row < 42; ++row) {
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t first = row * 5 + (interleaved ? 2 * i : i), second = first + (interleaved ? 1 : 2);
        const double cosine = c[row % 7 * 2 + i], sine = s[row % 7 * 2 + i];
        EXPECT_DOUBLE_EQ(turned[first], given[first] * cosine - given[second] * sine);
        EXPECT_DOUBLE_EQ(turned[second], given[second] * cosine + given[first] * sine);
      }
      EXPECT_EQ(turned[row * 5 + 4], given[row * 5 + 4]);
    }
    // A turn keeps lengths, and its gradient is the turn back.
    sum(mul(y, y.detach())).backward();
    EXPECT_LE(furthest(x.grad(), x.detach()), 1e-12) << interleaved;
  }
  EXPECT_THROW(rotary_embedding(random_f64({2, 3, 7, 3}, 1), cosines, sines), UsageError);
}

}  // namespace
}  // namespace dtrain
