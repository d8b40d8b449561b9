// Kernels under the stopwatch: the same results, a span each, and the operations they are made of.
#include "runtime/device/timed_device.h"

#include <gtest/gtest.h>

#include "runtime/device/kernel_flops.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

/// No data: shapes are all that counting needs.
View shaped(const Dims& shape) { return {nullptr, DType::f32, shape, contiguous_strides(shape)}; }

TEST(KernelFlops, MatmulCountsEveryMultiplyAndAdd) {
  EXPECT_EQ(matmul_flops(shaped({5, 2, 3}), shaped({5, 2, 4})), 2 * 5 * 2 * 3 * 4);
}

TEST(KernelFlops, ConvolutionCountsTheTapsOfEachOutput) {
  // 8 outputs a place from 4 / groups of 2 channels, 3 x 3 taps, 2 images of 5 x 6 places.
  EXPECT_EQ(conv2d_flops(shaped({8, 2, 3, 3}), shaped({2, 8, 5, 6})), 2 * (2 * 8 * 5 * 6) * (2 * 3 * 3));
}

TEST(KernelFlops, PooledConvolutionCountsWhatPoolingReads) {
  const Pool2dGeometry max{}, avg{.kind = PoolKind::avg};
  const View weight = shaped({8, 4, 3, 3}), output = shaped({2, 8, 5, 6});
  const double one_place = 2.0 * (2 * 8 * 5 * 6) * (4 * 3 * 3);
  EXPECT_EQ(conv2d_pool2d_flops(max, weight, output), 4 * one_place);
  EXPECT_EQ(conv2d_pool2d_backward_flops(max, weight, output, false), one_place);
  EXPECT_EQ(conv2d_pool2d_backward_flops(max, weight, output, true), 2 * one_place);
  EXPECT_EQ(conv2d_pool2d_backward_flops(avg, weight, output, true), 8 * one_place);
}

TEST(TimedDevice, RecordsEachKernelAndChangesNoResult) {
  Generator generator(7);
  const Array a = Array::random({1, 8, 16}, generator), b = Array::random({1, 16, 4}, generator);
  const Array plain({1, 8, 4}), timed({1, 8, 4});
  const auto device = make_device("cpu");
  SpanRecorder spans;
  const auto stopwatch = make_timed_device(device, spans);
  device->kernels().matmul(a, b, {}, Activation::none, false, plain);
  EXPECT_TRUE(spans.take().empty()) << "the wrapped device itself is not timed";
  stopwatch->kernels().matmul(a, b, {}, Activation::none, false, timed);
  stopwatch->kernels().unary(UnaryOp::relu, timed, timed);
  device->kernels().unary(UnaryOp::relu, plain, plain);
  EXPECT_EQ(timed.values(), plain.values());

  const auto recorded = spans.take();
  ASSERT_EQ(recorded.size(), 2U);
  EXPECT_EQ(recorded[0].name, "matmul");
  EXPECT_EQ(recorded[0].category, "matmul");
  EXPECT_EQ(recorded[0].flops, 2 * 8 * 16 * 4);
  EXPECT_EQ(recorded[1].name, "unary");
  EXPECT_EQ(recorded[1].category, "elementwise");
  EXPECT_EQ(recorded[1].flops, 0);
  EXPECT_GE(recorded[1].start, recorded[0].end);
}

TEST(TimedDevice, IsTheDeviceItWraps) {
  const auto device = make_device("cpu");
  SpanRecorder spans;
  const auto timed = make_timed_device(device, spans);
  EXPECT_EQ(timed->type(), device->type());
  EXPECT_EQ(timed->name(), device->name());
  void* memory = timed->allocate(1000);
  EXPECT_GE(device->allocated_bytes(), 1000U);
  EXPECT_EQ(timed->allocated_bytes(), device->allocated_bytes());
  device->deallocate(memory, 1000);
  EXPECT_EQ(timed->allocated_bytes(), 0U);
}

TEST(TimedDevice, AKernelThatThrowsIsRecordedToo) {
  SpanRecorder spans;
  const auto timed = make_timed_device(make_device("cpu"), spans);
  Array in({3, 2}), out({1, 2}), index({1}, DType::i64);
  index.set({9});
  EXPECT_ANY_THROW(timed->kernels().index_select(in, index, out));
  EXPECT_EQ(spans.take().size(), 1U);
}

}  // namespace
}  // namespace dtrain
