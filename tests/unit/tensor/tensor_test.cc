// Creation, views and what they share, copies, in-place updates, and what is refused.
#include "runtime/tensor/tensor.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::message_of;
using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

class TensorTest : public testing::Test {
 protected:
  /// 0, 1, 2, … in `shape`.
  Tensor count(const Dims& shape) {
    Floats values(static_cast<std::size_t>(shape.product()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return Tensor::from_data(values, shape, device_);
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(TensorTest, Creation) {
  EXPECT_EQ(Tensor::zeros({2}, device_).to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(Tensor::ones({2}, device_, DType::i64).to_vector<std::int64_t>(), (Ints{1, 1}));
  EXPECT_EQ(Tensor::full({}, 2.5, device_, DType::f64).item(), 2.5);
  const Tensor u8 = Tensor::full({1}, 200, device_, DType::u8);
  EXPECT_EQ(u8.to_vector<std::int32_t>(), (std::vector<std::int32_t>{200}));
  EXPECT_EQ(Tensor::zeros({0, 3}, device_).numel(), 0);
  EXPECT_TRUE(Tensor::zeros({0, 3}, device_).to_vector<float>().empty());
  EXPECT_EQ(Tensor::from_data({1.0F, 2.0F}, {2, 1}, device_).describe(), "float32 [2, 1]");
  EXPECT_EQ(Tensor::full({1}, 1.00390625, device_, DType::bf16).item(), 1.0);
  EXPECT_EQ(message_of([&] {
              count({2});
              Tensor::from_data({1.0F}, {2}, device_);
            }),
            "from_data: shape [2] needs 2 values, got 1");
  EXPECT_THROW(Tensor::zeros({-1}, device_), UsageError);
  EXPECT_THROW(Tensor::zeros({1}, nullptr), UsageError);
}

TEST_F(TensorTest, UndefinedIsRefusedNotFollowed) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_FALSE(none.requires_grad());
  EXPECT_EQ(none.describe(), "undefined");
  EXPECT_THROW(none.shape(), UsageError);
  EXPECT_THROW(none.reshape({1}), UsageError);
}

TEST_F(TensorTest, RandIsTheGeneratorsUniform) {
  Generator first(3), second(3);
  Floats expected(6);
  second.uniform(expected, -2, 5);
  EXPECT_EQ(Tensor::rand({2, 3}, first, device_, -2, 5).to_vector<float>(), expected);
}

TEST_F(TensorTest, BorrowedMemoryIsSharedAndItsOwnerKept) {
  auto memory = std::make_shared<Floats>(Floats{1, 2, 3, 4});
  const std::weak_ptr<Floats> watch = memory;
  Tensor part;
  {
    const View view{memory->data(), DType::f32, {2, 2}, {2, 1}};
    const Tensor tensor = Tensor::borrow(view, device_, std::move(memory));
    part = tensor.select(0, 1);
  }
  ASSERT_FALSE(watch.expired());
  part.fill(9);
  EXPECT_EQ(*watch.lock(), (Floats{1, 2, 9, 9}));
  part = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST_F(TensorTest, ItemNeedsOneElement) {
  EXPECT_EQ(count({1, 1}).item(), 0);
  EXPECT_EQ(message_of([&] { count({2}).item(); }),
            "item: expected a tensor of one element, got float32 [2]");
}

TEST_F(TensorTest, ViewsShareMemory) {
  const Tensor base = count({2, 3});
  base.view({3, 2}).select(0, 0).fill(7);
  base.transpose(0, 1).select(0, 2).scale_in_place(10);
  base.reshape({6}).slice(0, 4, 5).fill(-1);
  EXPECT_EQ(base.to_vector<float>(), (Floats{7, 7, 20, 3, -1, 50}));
  EXPECT_TRUE(base.shares_storage(base.unsqueeze(0).squeeze(0).flatten().detach()));
  EXPECT_FALSE(base.shares_storage(base.clone()));
}

TEST_F(TensorTest, TransposePermuteAndReshape) {
  const Tensor base = count({2, 3});
  EXPECT_EQ(base.transpose(0, -1).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(base.transpose(0, 1).reshape({6}).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(count({2, 1, 3}).permute({2, 0, 1}).shape(), (Dims{3, 2, 1}));
  EXPECT_EQ(count({4, 6}).slice(1, 0, 4).view({4, 2, 2}).strides(), (Dims{6, 2, 1}));
  EXPECT_EQ(base.reshape({-1, 2}).shape(), (Dims{3, 2}));
  EXPECT_EQ(message_of([&] { base.reshape({4}); }),
            "reshape of float32 [2, 3]: 6 elements do not fit shape [4]");
  EXPECT_THROW(base.reshape({-1, -1}), UsageError);
  EXPECT_THROW(base.reshape({-1, 4}), UsageError);
  EXPECT_NE(message_of([&] { base.transpose(0, 1).view({6}); }).find("use reshape()"), std::string::npos);
  EXPECT_THROW(base.permute({0, 0}), UsageError);
  EXPECT_THROW(base.permute({0}), UsageError);
}

TEST_F(TensorTest, FlattenSqueezeUnsqueeze) {
  const Tensor base = count({2, 1, 3, 1});
  EXPECT_EQ(base.flatten(1, 2).shape(), (Dims{2, 3, 1}));
  EXPECT_EQ(base.flatten().shape(), (Dims{6}));
  EXPECT_EQ(Tensor::full({}, 1, device_).flatten().shape(), (Dims{1}));
  EXPECT_EQ(base.squeeze().shape(), (Dims{2, 3}));
  EXPECT_EQ(base.squeeze(1).shape(), (Dims{2, 3, 1}));
  EXPECT_EQ(base.squeeze(0).shape(), base.shape());
  EXPECT_EQ(base.unsqueeze(-1).shape(), (Dims{2, 1, 3, 1, 1}));
  EXPECT_THROW(base.flatten(2, 1), UsageError);
  EXPECT_THROW(base.unsqueeze(5), UsageError);
  EXPECT_THROW(base.squeeze(4), UsageError);
}

TEST_F(TensorTest, SelectAndSlice) {
  const Tensor base = count({3, 4});
  EXPECT_EQ(base.select(0, -1).to_vector<float>(), (Floats{8, 9, 10, 11}));
  EXPECT_EQ(base.select(1, 2).to_vector<float>(), (Floats{2, 6, 10}));
  EXPECT_EQ(base.slice(1, 1, -1).to_vector<float>(), (Floats{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(base.slice(1, 0, 100, 3).to_vector<float>(), (Floats{0, 3, 4, 7, 8, 11}));
  EXPECT_EQ(base.slice(0, 2, 1).numel(), 0);
  EXPECT_EQ(message_of([&] { base.select(0, 3); }), "select: index 3 is outside dimension 0 of shape [3, 4]");
  EXPECT_THROW(base.select(2, 0), UsageError);
  EXPECT_THROW(base.slice(0, 0, 1, 0), UsageError);
}

TEST_F(TensorTest, IndexSelect) {
  const Tensor index = Tensor::from_data(Ints{2, 0, 2}, {3}, device_);
  EXPECT_EQ(count({3, 2}).index_select(0, index).to_vector<float>(), (Floats{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(count({2, 3}).index_select(-1, index).to_vector<float>(), (Floats{2, 0, 2, 5, 3, 5}));
  EXPECT_THROW(count({2}).index_select(0, index), UsageError);
  EXPECT_THROW(count({3}).index_select(0, count({1})), UsageError);
}

TEST_F(TensorTest, ExpandAndSumTo) {
  const Tensor column = count({2, 1});
  const Tensor wide = column.expand({3, 2, 2});
  EXPECT_EQ(wide.to_vector<float>(), (Floats{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_TRUE(wide.shares_storage(column));
  EXPECT_EQ(wide.sum_to({2, 1}).to_vector<float>(), (Floats{0, 6}));
  EXPECT_EQ(wide.sum_to({}).item(), 6);
  EXPECT_THROW(column.expand({2}), UsageError);
  EXPECT_THROW(column.expand({3, 1}), UsageError);
  EXPECT_THROW(wide.sum_to({3}), UsageError);
  Tensor target = wide;
  EXPECT_NE(message_of([&] { target.fill(1); }).find("broadcast view"), std::string::npos);
}

TEST_F(TensorTest, ChannelsLastIsAnOrderInMemory) {
  const Tensor base = count({2, 3, 2, 2});
  const Tensor last = base.contiguous(MemoryFormat::channels_last);
  EXPECT_EQ(last.shape(), base.shape());
  EXPECT_EQ(last.strides(), (Dims{12, 1, 6, 3}));
  EXPECT_EQ(last.to_vector<float>(), base.to_vector<float>());
  EXPECT_TRUE(last.contiguous(MemoryFormat::channels_last).shares_storage(last));
  EXPECT_TRUE(last.clone().is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(last.to(DType::f64).is_contiguous(MemoryFormat::channels_last));
  EXPECT_EQ(last.flatten(1).to_vector<float>(), base.to_vector<float>());
  EXPECT_THROW(Tensor::empty({2, 3}, device_, DType::f32, MemoryFormat::channels_last), UsageError);
}

TEST_F(TensorTest, ConversionsBetweenDtypes) {
  const Tensor base = Tensor::from_data({-1.7F, 2.7F, 300.0F}, {3}, device_);
  EXPECT_EQ(base.to(DType::i64).to_vector<std::int64_t>(), (Ints{-1, 2, 300}));
  EXPECT_EQ(base.to(DType::i32).to(DType::f32).to_vector<float>(), (Floats{-1, 2, 300}));
  EXPECT_EQ(base.to(DType::bf16).to_vector<float>()[1], static_cast<float>(BFloat16(2.7F)));
  EXPECT_TRUE(base.to(DType::f32).shares_storage(base));
  EXPECT_EQ(base.to_vector<double>()[0], static_cast<double>(-1.7F));
}

TEST_F(TensorTest, CopiesToAnotherDeviceObject) {
  const auto other = make_device("cpu");
  const Tensor moved = count({2, 3}).transpose(0, 1).to(other);
  EXPECT_EQ(moved.shared_device(), other);
  EXPECT_EQ(moved.to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
}

TEST_F(TensorTest, InPlaceUpdatesBroadcastConvertAndAlias) {
  Tensor base = count({2, 2});
  base.copy_from(Tensor::from_data(Ints{5, 6}, {2}, device_));
  EXPECT_EQ(base.to_vector<float>(), (Floats{5, 6, 5, 6}));
  base.add_in_place(Tensor::from_data({1.0F, 2.0F}, {2, 1}, device_), 10);
  EXPECT_EQ(base.to_vector<float>(), (Floats{15, 16, 25, 26}));
  base.copy_from(base.transpose(0, 1));  // overlapping source
  EXPECT_EQ(base.to_vector<float>(), (Floats{15, 25, 16, 26}));
  base.select(1, 0).add_in_place(Tensor::ones({2}, device_));  // not dense
  EXPECT_EQ(base.to_vector<float>(), (Floats{16, 25, 17, 26}));
  EXPECT_EQ(message_of([&] { base.copy_from(count({3})); }),
            "copy_from: float32 [3] does not broadcast to [2, 2]");
}

TEST_F(TensorTest, VersionCountsModificationsThroughAnyView) {
  Tensor base = count({2, 2});
  const std::uint64_t before = base.version();
  base.select(0, 1).fill(1);
  base.scale_in_place(2);
  base.detach().add_in_place(base);
  EXPECT_EQ(base.version(), before + 3);
  EXPECT_EQ(base.clone().version(), 0U);
}

TEST_F(TensorTest, MemoryGoesBackToTheDevice) {
  const std::size_t before = device_->allocated_bytes();
  {
    const Tensor view = count({1000}).slice(0, 10, 20);
    EXPECT_GE(device_->allocated_bytes(), before + 4000);
  }
  EXPECT_EQ(device_->allocated_bytes(), before);
}

}  // namespace
}  // namespace dtrain
