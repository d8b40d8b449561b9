// gather, scatter_add, cumsum, sort, pool2d_pick and int64 products: any layout, edge cases, refusals. Their
// numbers beside PyTorch's are in tests/parity/operations.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using Values = std::vector<double>;

Array make(const Dims& shape, const Values& values, DType dtype = DType::f32) {
  Array array(shape, dtype);
  array.set(values);
  return array;
}

/// The first two dimensions exchanged.
View transposed(View view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

TEST(Gather, PicksFromAnyLayoutAndDtype) {
  const auto device = make_device("cpu");
  const Array index = make({2, 2}, {2, 0, 1, 1}, DType::i64);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::i8, DType::u8}) {
    const Array table = make({2, 3}, {0, 1, 2, 3, 4, 5}, dtype), out({2, 2}, dtype);
    device->kernels().gather(table, 1, index, out);
    EXPECT_EQ(out.values(), (Values{2, 0, 4, 4})) << name_of(dtype);
  }
  const Array table = make({3, 2}, {0, 3, 1, 4, 2, 5}), out({2, 2});
  device->kernels().gather(transposed(table), 1, transposed(index), transposed(out));
  EXPECT_EQ(out.values(), (Values{2, 3, 1, 4}));
}

TEST(ScatterAdd, AddsRepeatedIndicesInAnyDtypeItHas) {
  const auto device = make_device("cpu");
  const Array index = make({2, 3}, {1, 1, 0, 2, 2, 2}, DType::i64);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64}) {
    const Array in = make({2, 3}, {1, 2, 3, 4, 5, 6}, dtype);
    const Array out = make({2, 3}, {10, 10, 10, 10, 10, 10}, dtype);
    device->kernels().scatter_add(in, 1, index, out);
    EXPECT_EQ(out.values(), (Values{13, 13, 10, 10, 10, 25})) << name_of(dtype);
  }
}

TEST(GatherAndScatterAdd, RefuseBeforeWriting) {
  const auto device = make_device("cpu");
  const Array table = make({2, 3}, {1, 2, 3, 4, 5, 6}), lines({2, 1});
  for (const double wrong : {-1.0, 3.0}) {
    const Array index = make({2, 1}, {0, wrong}, DType::i64);
    EXPECT_THROW(device->kernels().gather(table, 1, index, lines), UsageError);
    EXPECT_THROW(device->kernels().scatter_add(lines, 1, index, table), UsageError);
  }
  EXPECT_EQ(table.values(), (Values{1, 2, 3, 4, 5, 6}));
  const Array index({2, 1}, DType::i64), tall({3, 1}, DType::i64), out({3, 1});
  EXPECT_THROW(device->kernels().gather(table, 2, index, lines), UsageError);
  EXPECT_THROW(device->kernels().gather(table, 1, tall, out), UsageError);
}

TEST(Cumsum, BothWaysAndInPlace) {
  const auto device = make_device("cpu");
  const Array in = make({2, 3}, {1, 2, 3, 4, 5, 6}), out({2, 3});
  device->kernels().cumsum(in, 1, false, out);
  EXPECT_EQ(out.values(), (Values{1, 3, 6, 4, 9, 15}));
  device->kernels().cumsum(in, 0, true, out);
  EXPECT_EQ(out.values(), (Values{5, 7, 9, 4, 5, 6}));
  device->kernels().cumsum(in, 1, true, in);
  EXPECT_EQ(in.values(), (Values{6, 5, 3, 15, 11, 6}));
}

TEST(Cumsum, AddsUpInDouble) {
  const std::int64_t count = 1 << 20;
  const Array in = make({count}, Values(static_cast<std::size_t>(count), 0.1)), out({count});
  make_device("cpu")->kernels().cumsum(in, 0, false, out);
  const double exact = static_cast<double>(0.1F) * static_cast<double>(count);
  EXPECT_NEAR(out.values().back(), exact, exact * 1e-7);
}

TEST(Sort, KeepsTheOrderOfEqualsAndPutsNanLast) {
  const auto device = make_device("cpu");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Array in = make({6}, {2, nan, 1, 2, nan, -3}), values({6}), indices({6}, DType::i64);
  device->kernels().sort(in, 0, false, values, indices);
  EXPECT_EQ(indices.values(), (Values{5, 2, 0, 3, 1, 4}));
  device->kernels().sort(in, 0, true, values, indices);
  EXPECT_EQ(indices.values(), (Values{1, 4, 0, 3, 2, 5}));
  const Array first({2}), places({2}, DType::i64);
  device->kernels().sort(in, 0, false, first, places);
  EXPECT_EQ(first.values(), (Values{-3, 1}));
  EXPECT_EQ(places.values(), (Values{5, 2}));
}

TEST(Sort, TakesAnyLayoutAndRefusesMoreThanThereIs) {
  const auto device = make_device("cpu");
  const Array in = make({3, 2}, {3, 1, 1, 2, 2, 3}), values({2, 3}), indices({2, 3}, DType::i64);
  device->kernels().sort(transposed(in), 1, false, values, indices);
  EXPECT_EQ(values.values(), (Values{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(indices.values(), (Values{1, 2, 0, 0, 1, 2}));
  const Array many({3, 3}), places({3, 3}, DType::i64);
  EXPECT_THROW(device->kernels().sort(in, 1, false, many, places), UsageError);
}

TEST(IntegerMatmul, MultipliesBatchesAndTransposes) {
  const auto device = make_device("cpu");
  const Array a = make({2, 1, 2}, {1, 2, 3, 4}, DType::i64),
              b = make({2, 2, 2}, {1, 0, 0, 1, 1, 2, 3, 4}, DType::i64);
  const Array out = make({2, 1, 2}, {100, 100, 100, 100}, DType::i64);
  device->kernels().matmul(a, b, {}, Activation::none, true, out);
  EXPECT_EQ(out.values(), (Values{101, 102, 115, 122}));
  View flipped = b;
  std::swap(flipped.strides[1], flipped.strides[2]);
  device->kernels().matmul(a, flipped, {}, Activation::none, false, out);
  EXPECT_EQ(out.values(), (Values{1, 2, 11, 25}));
  const Array bias({2}, DType::i64);
  EXPECT_THROW(device->kernels().matmul(a, b, bias, Activation::none, false, out), UsageError);
}

TEST(Pool2dPick, ReadsWhatPoolingChose) {
  const auto device = make_device("cpu");
  Generator generator(3);
  const Pool2dGeometry geometry{PoolKind::max, 3, 2, 2, 1, 1, 1};
  for (const auto layout : {test::Layout::contiguous, test::Layout::channels_last}) {
    const Array input = Array::random({2, 3, 6, 5}, generator).as(DType::f32, layout);
    const Array pooled({2, 3, 3, 6}, DType::f32, layout), picked({2, 3, 3, 6}, DType::f32, layout);
    const Array indices({2, 3, 3, 6}, DType::u8, layout);
    device->kernels().pool2d(geometry, input, pooled, indices);
    device->kernels().pool2d_pick(geometry, input, indices, picked);
    EXPECT_EQ(picked.values(), pooled.values());
    EXPECT_THROW(device->kernels().pool2d_pick(geometry, input, {}, picked), UsageError);
  }
}

TEST(CrossEntropy, IgnoredRowsCostNothing) {
  const auto device = make_device("cpu");
  const double infinity = std::numeric_limits<double>::infinity();
  const Array logits = make({3, 2}, {0, 0, infinity, infinity, 1, 3});
  const Array target = make({3}, {1, -7, 0}, DType::i64), ones = make({3}, {1, 1, 1});
  const Array log_probs({3, 2}), losses({3}), grads({3, 2});
  device->kernels().cross_entropy(logits, target, -7, log_probs, losses);
  device->kernels().cross_entropy_backward(log_probs, target, -7, ones, grads);
  EXPECT_EQ(losses.values()[1], 0);
  EXPECT_EQ(grads.values()[2], 0) << "though its probabilities are NaN";
  EXPECT_EQ(grads.values()[3], 0);
  EXPECT_GT(losses.values()[2], 2);
  EXPECT_THROW(device->kernels().cross_entropy(logits, target, std::nullopt, log_probs, losses), UsageError);
}

}  // namespace
}  // namespace dtrain
