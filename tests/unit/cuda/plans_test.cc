// The CUDA device's pure parts: how arrays are walked, what identifies a plan, how a step is cut, what faults
// say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

#include "runtime/device/cuda/convolution/convolutions.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/matmul/matmul_plans.h"
#include "runtime/device/cuda/memory/slot_tables.h"

namespace dtrain::cuda {
namespace {

using testing::HasSubstr;

/// Every offset the walk visits in array `a`, sorted.
template <int N>
std::multiset<std::int64_t> visited(const Layout<N>& layout, int a) {
  std::multiset<std::int64_t> offsets;
  for (std::int64_t i = 0; i < layout.count; ++i) {
    std::int64_t at[N];
    layout.locate(i, at);
    offsets.insert(at[a]);
  }
  return offsets;
}

TEST(Layout, DenseArraysOfAnyOrderAreOneRun) {
  const Dims shape = {4, 3, 5, 2};
  const Dims last = channels_last_strides(shape), first = contiguous_strides(shape);
  EXPECT_TRUE((make_layout<2>(shape, {last, last}).is_dense()));
  EXPECT_TRUE((make_layout<2>(shape, {first, first}).is_dense()));
  EXPECT_FALSE((make_layout<2>(shape, {first, last}).is_dense()));
  EXPECT_TRUE((make_layout<1>({}, {Dims{}}).is_dense()));
  EXPECT_EQ((make_layout<1>({3, 0, 2}, {contiguous_strides({3, 0, 2})}).count), 0);
}

TEST(Layout, ScalarBroadcastIsNotDense) {
  EXPECT_FALSE((make_layout<2>({6}, {Dims{1}, Dims{0}}).is_dense()));
  EXPECT_EQ((visited(make_layout<2>({6}, {Dims{1}, Dims{0}}), 1)),
            (std::multiset<std::int64_t>{0, 0, 0, 0, 0, 0}));
}

TEST(Layout, VisitsEveryElementOnceAndKeepsArraysTogether) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Dims shape;
    const int rank = static_cast<int>(random() % 5);
    for (int i = 0; i < rank; ++i) shape.push_back(1 + static_cast<std::int64_t>(random() % 4));
    const Dims out = contiguous_strides(shape);
    Dims in = out;  // a transposed, partly broadcast array
    for (int i = 0; i < rank; ++i) in[i] = random() % 3 == 0 ? 0 : 100 * (i + 1);
    const auto layout = make_layout<2>(shape, {out, in});
    std::vector<std::int64_t> expected(static_cast<std::size_t>(shape.product()));
    for (std::int64_t i = 0; i < shape.product(); ++i) {
      std::int64_t rest = i;
      for (int d = rank - 1; d >= 0; --d) {
        expected[static_cast<std::size_t>(i)] += rest % shape[d] * in[d];
        rest /= shape[d];
      }
    }
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < layout.count; ++i) {
      std::int64_t at[2];
      layout.locate(i, at);
      EXPECT_TRUE(seen.insert(at[0]).second);
      EXPECT_EQ(at[1], expected[static_cast<std::size_t>(at[0])]) << shape.to_string();
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), shape.product());
  }
}

TEST(Divisor, DividesWhateverFitsBy63Bits) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::mt19937_64 random(11);
  std::vector<std::int64_t> divisors = {
      1, 2, 3, 5, 7, 641, 65535, 65536, 65537, INT32_MAX, std::int64_t{1} << 61};
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + static_cast<std::int64_t>(random() >> (3 + i % 60)));
  for (const std::int64_t by : divisors) {
    const Divisor divide(by);
    std::vector<std::int64_t> dividends = {
        0, 1, by - 1, by, by + 1, kMost, kMost - 1, kMost / by * by, kMost / by * by - 1};
    for (int i = 0; i < 200; ++i) dividends.push_back(static_cast<std::int64_t>(random() >> (1 + i % 63)));
    for (const std::int64_t dividend : dividends) {
      ASSERT_EQ(divide(dividend), dividend / by) << dividend << " / " << by;
    }
  }
  EXPECT_EQ(Divisor(0)(17), 17);  // of an array that is not there
  EXPECT_EQ(Divisor()(17), 17);
}

View matrix(std::int64_t batch, std::int64_t rows, std::int64_t columns, const Dims& strides) {
  return {reinterpret_cast<void*>(std::uintptr_t{1} << 20), DType::f32, {batch, rows, columns}, strides};
}

TEST(Operand, TakesBothOrdersAsTheyLie) {
  Operand operand;
  ASSERT_TRUE(as_operand(matrix(2, 3, 5, {15, 5, 1}), operand));
  EXPECT_EQ(operand, (Operand{false, 5, 15, 256}));
  ASSERT_TRUE(as_operand(matrix(2, 3, 5, {15, 1, 3}), operand));  // transposed
  EXPECT_EQ(operand, (Operand{true, 3, 15, 256}));
  ASSERT_TRUE(as_operand(matrix(1, 3, 5, {0, 8, 1}), operand));  // rows apart
  EXPECT_EQ(operand, (Operand{false, 8, 0, 256}));
  ASSERT_TRUE(as_operand(matrix(4, 3, 5, {0, 5, 1}), operand));  // one for the whole batch
  EXPECT_EQ(operand.batch_stride, 0);
  ASSERT_TRUE(as_operand(matrix(1, 1, 5, {0, 0, 1}), operand));  // a single row of any stride
  EXPECT_EQ(operand.leading, 5);
  EXPECT_FALSE(as_operand(matrix(1, 3, 5, {0, 10, 2}), operand));
  EXPECT_FALSE(as_operand(matrix(1, 3, 5, {0, 0, 1}), operand));  // one row repeated: rows would overlap
}

TEST(Operand, KnowsAlignment) {
  EXPECT_EQ(alignment_of(reinterpret_cast<void*>(512)), 256);
  EXPECT_EQ(alignment_of(reinterpret_cast<void*>(64)), 64);
  EXPECT_EQ(alignment_of(reinterpret_cast<void*>(68)), 4);
  EXPECT_EQ(alignment_of(reinterpret_cast<void*>(3)), 1);
}

TEST(PlanKeys, DifferWhereverThePlanWould) {
  const MatmulKey base{.m = 2, .n = 3, .k = 4, .batch = 1};
  std::vector<MatmulKey> keys(8, base);
  keys[1].bias = true;
  keys[2].relu = true;
  keys[3].accumulate = true;
  keys[4].first.transposed = true;
  keys[5].dtype = DType::bf16;
  keys[6].out_alignment = 16;
  keys[7].second.batch_stride = 8;
  std::set<std::size_t> hashes;
  for (const MatmulKey& key : keys) hashes.insert(MatmulKeyHash{}(key));
  EXPECT_EQ(hashes.size(), keys.size());
  EXPECT_EQ(MatmulKeyHash{}(base), MatmulKeyHash{}(keys[0]));

  const View x{nullptr, DType::f32, {2, 3, 8, 8}, {}}, w{nullptr, DType::f32, {4, 3, 3, 3}, {}},
      y{nullptr, DType::f32, {2, 4, 6, 6}, {}};
  const ConvKey conv = make_conv_key(ConvPass::forward, {}, x, w, y);
  ConvKey backward = conv, strided = conv;
  backward.pass = ConvPass::backward_weight;
  strided.geometry.stride_w = 2;
  EXPECT_FALSE(conv == backward);
  EXPECT_NE(ConvKeyHash{}(conv), ConvKeyHash{}(backward));
  EXPECT_NE(ConvKeyHash{}(conv), ConvKeyHash{}(strided));
  EXPECT_EQ(conv, make_conv_key(ConvPass::forward, {}, x, w, y));
}

TEST(SlotChunks, CoverEverySlotOnce) {
  std::vector<SlotEntry> entries(4);
  entries[0].count = 1;
  entries[1].count = 2 * kChunkElements + 5;
  entries[3].count = kChunkElements;
  std::vector<std::int64_t> covered(entries.size());
  for (const SlotChunk& chunk : cut_into_chunks(entries)) {
    const auto slot = static_cast<std::size_t>(chunk.slot);
    EXPECT_EQ(chunk.begin, covered[slot]);
    covered[slot] += std::min(kChunkElements, entries[slot].count - chunk.begin);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(covered[i], entries[i].count);
  EXPECT_TRUE(cut_into_chunks({}).empty());
}

TEST(Faults, SayWhatCameAndWhatWasExpected) {
  const auto text = [](FaultKind kind) { return describe_fault({static_cast<int>(kind), 0, 7, 12, 10}); };
  EXPECT_EQ(text(FaultKind::target), "cuda kernel cross_entropy: target[7] expected 0 to 9, got 12");
  EXPECT_THAT(text(FaultKind::index_select), HasSubstr("index[7] expected 0 to 9, got 12"));
  EXPECT_THAT(text(FaultKind::division), HasSubstr("division by zero"));
}

}  // namespace
}  // namespace dtrain::cuda
