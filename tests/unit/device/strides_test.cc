// Vectors beside an operation's large arrays (biases, a batch normalisation's channels) may be columns of
// matrices or broadcast: kernels read and write them where they lie, and nothing beside them.
#include <gtest/gtest.h>

#include <array>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

constexpr double kUntouched = 77;

/// A column of a matrix of three, whose other columns stay as they are.
class Column {
 public:
  Column(const Array& values, DType dtype) : matrix_({values.view().shape[0], 3}, dtype) {
    make_device("cpu")->kernels().fill(matrix_, kUntouched);
    make_device("cpu")->kernels().copy(values, view());
  }
  View view() const {
    View column = matrix_.view();
    column.data = column.as<std::byte>() + size_of(column.dtype);
    column.shape = {column.shape[0]};
    column.strides = {3};
    return column;
  }
  std::vector<double> values() const { return every(1); }
  bool is_alone() const {
    for (const std::size_t column : {0U, 2U}) {
      for (const double value : every(column)) {
        if (value != kUntouched) return false;
      }
    }
    return true;
  }

 private:
  std::vector<double> every(std::size_t column) const {
    std::vector<double> result;
    const auto all = matrix_.values();
    for (std::size_t i = column; i < all.size(); i += 3) result.push_back(all[i]);
    return result;
  }
  Array matrix_;
};

View broadcast(const Array& one, std::int64_t extent) {
  View view = one.view();
  view.shape = {extent};
  view.strides = {0};
  return view;
}

struct NormCase {
  DType dtype;
  Layout layout;
};

class StridedBatchNorm : public testing::TestWithParam<NormCase> {
 protected:
  static constexpr std::int64_t kChannels = 19;
  Array activation() { return Array::random(shape_, generator_, GetParam().dtype, GetParam().layout); }
  Array channel() { return Array::random({kChannels}, generator_, vector_dtype_); }
  DType vector_dtype_ = GetParam().dtype == DType::f64 ? DType::f64 : DType::f32;
  Dims shape_{3, kChannels, 5, 4};
  Generator generator_{3};
  std::shared_ptr<Device> device_ = make_device("cpu");
  Kernels& kernels_ = device_->kernels();
};

TEST_P(StridedBatchNorm, TrainsInPlaceAndGivesTheGradientsOfADenseOne) {
  const Array x = activation(), dy = activation();
  const Array channels[] = {channel(), channel(), channel(), channel(), channel(), channel()};
  const Array y = activation(), dx = activation(), dw = channel(), db = channel();
  const Array other_y = activation(), other_dx = activation();
  const auto column = [&](int i) { return Column(channels[i], vector_dtype_); };
  const std::array<Column, 6> columns = {column(0), column(1), column(2), column(3), column(4), column(5)};
  const Column other_dw(dw, vector_dtype_), other_db(db, vector_dtype_);
  const BatchNormChannels strided{columns[0].view(), columns[1].view(), columns[2].view(),
                                  columns[3].view(), columns[4].view(), columns[5].view()};
  const BatchNormChannels dense{channels[0], channels[1], channels[2], channels[3], channels[4], channels[5]};
  kernels_.batch_norm({}, dense, x, {}, y);
  kernels_.batch_norm_backward({}, dense, x, y, dy, dx, {}, dw, db);
  kernels_.batch_norm({}, strided, x, {}, other_y);
  kernels_.batch_norm_backward({}, strided, x, other_y, dy, other_dx, {}, other_dw.view(), other_db.view());
  EXPECT_EQ(other_y.values(), y.values());
  EXPECT_EQ(other_dx.values(), dx.values());
  EXPECT_EQ(other_dw.values(), dw.values());
  EXPECT_EQ(other_db.values(), db.values());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    EXPECT_EQ(columns[i].values(), channels[i].values()) << i;
    EXPECT_TRUE(columns[i].is_alone()) << i;
  }
  EXPECT_TRUE(other_dw.is_alone() && other_db.is_alone());
}

TEST_P(StridedBatchNorm, EvaluatesByStridedStatistics) {
  const Array x = activation(), weight = channel(), bias = channel(), mean = channel();
  Array var({kChannels}, vector_dtype_);
  kernels_.fill(var, 0.75);
  const Array y = activation(), other = activation();
  const auto column = [&](const Array& of) { return Column(of, vector_dtype_); };
  const Column w = column(weight), b = column(bias), m = column(mean), v = column(var);
  kernels_.batch_norm_inference({}, {weight, bias, mean, var, {}, {}}, x, {}, y);
  kernels_.batch_norm_inference({}, {w.view(), b.view(), m.view(), v.view(), {}, {}}, x, {}, other);
  EXPECT_EQ(other.values(), y.values());
}

TEST_P(StridedBatchNorm, ReadsBroadcastVectorsAndDoesNotWriteThem) {
  const Array x = activation(), mean = channel(), inv_std = channel(), y = activation(), other = activation();
  Array one({1}, vector_dtype_), ones({kChannels}, vector_dtype_);
  kernels_.fill(one, 0.25);
  kernels_.fill(ones, 0.25);
  const View wide = broadcast(one, kChannels);
  kernels_.batch_norm({}, {ones, ones, {}, {}, mean, inv_std}, x, {}, y);
  kernels_.batch_norm({}, {wide, wide, {}, {}, mean, inv_std}, x, {}, other);
  EXPECT_EQ(other.values(), y.values());
  EXPECT_THROW(kernels_.batch_norm({}, {{}, {}, wide, {}, mean, inv_std}, x, {}, y), UsageError);
  EXPECT_THROW(kernels_.batch_norm({}, {{}, {}, {}, wide, mean, inv_std}, x, {}, y), UsageError);
  EXPECT_EQ(one.values()[0], 0.25);
}

INSTANTIATE_TEST_SUITE_P(Layouts, StridedBatchNorm,
                         testing::Values(NormCase{DType::f32, Layout::channels_last},
                                         NormCase{DType::f32, Layout::contiguous},
                                         NormCase{DType::bf16, Layout::channels_last},
                                         NormCase{DType::f64, Layout::contiguous}));

struct BiasCase {
  DType dtype, bias_dtype;
};

class StridedBias : public testing::TestWithParam<BiasCase> {
 protected:
  static constexpr std::int64_t kOutputs = 32;
  Generator generator_{9};
  std::shared_ptr<Device> device_ = make_device("cpu");
  Kernels& kernels_ = device_->kernels();
  Array random(const Dims& shape) { return Array::random(shape, generator_, GetParam().dtype); }
  Array bias_ = Array::random({kOutputs}, generator_, GetParam().bias_dtype);
  Column column_{bias_, GetParam().bias_dtype};
};

TEST_P(StridedBias, OfConvolutions) {
  const Array x = random({17, 32, 8, 8}), w = random({kOutputs, 32, 3, 3}), v = random({kOutputs, 32, 2, 2});
  Array y({17, kOutputs, 8, 8}, GetParam().dtype), other({17, kOutputs, 8, 8}, GetParam().dtype);
  const Conv2dGeometry padded{.pad_h = 1, .pad_w = 1};
  kernels_.conv2d(padded, x, w, bias_, Activation::relu, y);
  kernels_.conv2d(padded, x, w, column_.view(), Activation::relu, other);
  EXPECT_EQ(other.values(), y.values());
  Array pooled({17, kOutputs, 3, 3}, GetParam().dtype), again({17, kOutputs, 3, 3}, GetParam().dtype);
  kernels_.conv2d_relu_pool2d({}, {}, x, v, bias_, pooled, View{});
  kernels_.conv2d_relu_pool2d({}, {}, x, v, column_.view(), again, View{});
  EXPECT_EQ(again.values(), pooled.values());
}

TEST_P(StridedBias, GradientsOfConvolutions) {
  const Array x = random({3, 32, 8, 8}), dy = random({3, kOutputs, 8, 8});
  Array dw({kOutputs, 32, 3, 3}, GetParam().dtype), db({kOutputs}, GetParam().bias_dtype);
  const Conv2dGeometry padded{.pad_h = 1, .pad_w = 1};
  kernels_.conv2d_backward_weight(padded, x, dy, dw, db);
  const auto expected = dw.values();
  kernels_.conv2d_backward_weight(padded, x, dy, dw, column_.view());
  EXPECT_EQ(dw.values(), expected);
  EXPECT_EQ(column_.values(), db.values());
  EXPECT_TRUE(column_.is_alone());
  const Array one({1}, GetParam().bias_dtype);
  EXPECT_THROW(kernels_.conv2d_backward_weight(padded, x, dy, dw, broadcast(one, kOutputs)), UsageError);
}

TEST_P(StridedBias, OfMatrixProducts) {
  const Array a = random({1, 5, 7}), b = random({1, 7, kOutputs});
  Array y({1, 5, kOutputs}, GetParam().dtype), other({1, 5, kOutputs}, GetParam().dtype);
  kernels_.matmul(a, b, bias_, Activation::none, false, y);
  kernels_.matmul(a, b, column_.view(), Activation::none, false, other);
  EXPECT_EQ(other.values(), y.values());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StridedBias,
                         testing::Values(BiasCase{DType::f32, DType::f32}, BiasCase{DType::f64, DType::f64},
                                         BiasCase{DType::bf16, DType::bf16},
                                         BiasCase{DType::bf16, DType::f32}));

TEST(OptimizerSlots, AreDense) {
  const auto device = make_device("cpu");
  Array memory({3, 4}), grad({3, 4});
  View param = memory.view(), step = memory.view();
  step.shape = {3, 2};
  step.strides = {4, 2};
  const OptimizerSlot stepped{step, step, {}, {}};
  EXPECT_THROW(device->kernels().sgd(std::span(&stepped, 1), {.lr = 1}), UsageError);
  std::swap(param.shape[0], param.shape[1]);  // transposed is dense
  std::swap(param.strides[0], param.strides[1]);
  const OptimizerSlot turned{param, param, {}, {}};
  EXPECT_NO_THROW(device->kernels().sgd(std::span(&turned, 1), {.lr = 1}));
}

}  // namespace
}  // namespace dtrain
