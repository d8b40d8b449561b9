// Every dtype that is stored: casts between all pairs, float16 bit by bit, and what refuses to compute.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/functors.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64,
                          DType::i32, DType::i16, DType::i8,   DType::u8,  DType::boolean};
constexpr DType kStored[] = {DType::f16, DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean};

TEST(Float16, EveryPatternComesBackFromFloat) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    const bool is_nan = (bits & 0x7fffU) > 0x7c00U;
    ASSERT_EQ(std::isnan(value), is_nan) << bits;
    const Float16 back(value);
    if (is_nan) {
      EXPECT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TEST(Float16, HasTheValuesOfTheStandard) {
  const auto value_of = [](std::uint16_t bits) {
    Float16 half;
    half.bits = bits;
    return static_cast<float>(half);
  };
  EXPECT_EQ(value_of(0x3c00), 1.0F);
  EXPECT_EQ(value_of(0xc000), -2.0F);
  EXPECT_EQ(value_of(0x7bff), 65504.0F);
  EXPECT_EQ(value_of(0x0400), 0x1p-14F);
  EXPECT_EQ(value_of(0x0001), 0x1p-24F);
  EXPECT_EQ(value_of(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(value_of(0x8000)));
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(Float16(65519.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Float16(65520.0F)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Float16(0x1p-25F).bits, 0);  // half of the smallest, to even
  EXPECT_EQ(Float16(-0x1.8p-25F).bits, 0x8001);
  Generator generator(5);
  for (int i = 0; i < 100000; ++i) {
    const float value = std::bit_cast<float>(generator.next32());
    if (std::isnan(value)) continue;
    const float expected = functor::RoundHalf{}(value);
    ASSERT_EQ(static_cast<float>(Float16(value)), expected) << value;
  }
}

/// Copies of rows go by the processor's instructions, which must be the formulas' bits: of NaN, too, and of
/// what rounds to a subnormal number or to infinity.
TEST(Float16, RowsHaveTheBitsOfSingleConversions) {
  const auto device = make_device("cpu");
  constexpr std::int64_t kCount = 0x10000;
  Array halves({kCount}, DType::f16), floats({kCount}), to_floats({kCount}), to_halves({kCount}, DType::f16);
  auto* const half = halves.view().as<Float16>();
  for (std::int64_t i = 0; i < kCount; ++i) half[i].bits = static_cast<std::uint16_t>(i);
  device->kernels().copy(halves, to_floats);
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to_floats.view().as<float>()[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(half[i])))
        << i;
  }
  for (std::uint32_t low : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x2000U, 0x3000U, 0xffffU}) {
    auto* const value = floats.view().as<float>();
    for (std::uint32_t i = 0; i < kCount; ++i) value[i] = std::bit_cast<float>(i << 16 | low);
    device->kernels().copy(floats, to_halves);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(to_halves.view().as<Float16>()[i].bits, Float16(value[i]).bits) << i << " " << low;
    }
  }
}

/// What `value` becomes in `dtype`; it fits into all of them.
double in(DType dtype, double value) {
  if (dtype == DType::boolean) return value != 0 ? 1 : 0;
  return is_floating(dtype) ? value : std::trunc(value);
}

TEST(Copy, CastsBetweenAllDtypes) {
  const auto device = make_device("cpu");
  const std::vector<double> values = {0, 1, 2.5, 0.25, 100, 127};
  const auto count = static_cast<std::int64_t>(values.size());
  for (const DType from : kAll) {
    Array source({count}, from);
    source.set(values);
    for (const DType to : kAll) {
      const Array target({count}, to);
      device->kernels().copy(source, target);
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(target.values()[i], in(to, in(from, values[i])))
            << values[i] << " from " << name_of(from) << " to " << name_of(to);
      }
    }
  }
}

TEST(Copy, SignsSurvive) {
  for (const DType dtype : {DType::f16, DType::i16, DType::i8, DType::i32}) {
    Array array({2}, dtype);
    array.set({-100, -1});
    EXPECT_EQ(array.values(), (std::vector<double>{-100, -1})) << name_of(dtype);
  }
}

TEST(Copy, AnyByteButZeroIsTrue) {
  Array bytes({3}, DType::u8);
  bytes.set({0, 2, 255});
  View truths = bytes;
  truths.dtype = DType::boolean;
  const Array numbers({3});
  make_device("cpu")->kernels().copy(truths, numbers);
  EXPECT_EQ(numbers.values(), (std::vector<double>{0, 1, 1}));
}

TEST(Copy, NanIsTrue) {
  Array number({1});
  number.set({std::numeric_limits<double>::quiet_NaN()});
  const Array truth({1}, DType::boolean);
  make_device("cpu")->kernels().copy(number, truth);
  EXPECT_EQ(truth.values(), (std::vector<double>{1}));
}

TEST(Where, PicksAnyDtypeByTruth) {
  const auto device = make_device("cpu");
  Array truths({4}, DType::boolean);
  truths.set({1, 0, 0, 1});
  for (const DType dtype : kAll) {
    Array a({4}, dtype), b({4}, dtype);
    const Array out({4}, dtype);
    a.set({1, 1, 1, 1});
    b.set({0, 0, 0, 0});
    device->kernels().where(truths, a, b, out);
    EXPECT_EQ(out.values(), truths.values()) << name_of(dtype);
  }
}

void expect_refused(const std::string& operation, DType dtype, const std::function<void()>& call) {
  try {
    call();
    FAIL() << operation << " of " << name_of(dtype) << " did not throw";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("kernel " + operation), std::string::npos) << text;
    EXPECT_NE(text.find(name_of(dtype)), std::string::npos) << text;
  }
}

TEST(Arithmetic, OnStorageDtypesIsRefusedByName) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  for (const DType dtype : kStored) {
    const Array a({2}, dtype), out({2}, dtype), one({1}, dtype);
    expect_refused("unary", dtype, [&] { kernels.unary(UnaryOp::neg, a, out); });
    expect_refused("binary", dtype, [&] { kernels.binary(BinaryOp::add, a, a, out); });
    expect_refused("reduce", dtype, [&] { kernels.reduce(Reduction::sum, a, one); });
    expect_refused("accumulate", dtype, [&] { kernels.accumulate(a, 1, out); });
    if (dtype == DType::i32 || dtype == DType::u8) continue;  // pixels and tokens can be scaled
    expect_refused("affine", dtype, [&] { kernels.affine(a, 2, 0, out); });
  }
}

}  // namespace
}  // namespace dtrain
