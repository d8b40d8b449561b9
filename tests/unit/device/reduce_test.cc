// Reductions over every set of dimensions, arg-max, and indexing with its errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

TEST(Reduce, EverySetOfDimensions) {
  const auto device = make_device("cpu");
  Generator generator(1);
  const Dims shape = {3, 4, 5, 2};
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    const Array in = Array::random(shape, generator, DType::f32, layout);
    const auto values = in.values();
    for (int set = 0; set < 16; ++set) {
      Dims kept = shape;
      for (int d = 0; d < 4; ++d) kept[d] = (set >> d & 1) != 0 ? 1 : shape[d];
      const Dims strides = contiguous_strides(kept);
      const auto cells = static_cast<std::size_t>(kept.product());
      std::vector<double> sums(cells, 0.0), most(cells, -10), least(cells, 10);
      for (std::int64_t i = 0; i < shape.product(); ++i) {
        std::int64_t rest = i, cell = 0;
        for (int d = 3; d >= 0; --d, rest /= shape[d + 1]) {
          if (kept[d] != 1) cell += rest % shape[d] * strides[d];
        }
        const auto c = static_cast<std::size_t>(cell);
        const double value = values[static_cast<std::size_t>(i)];
        sums[c] += value;
        most[c] = std::max(most[c], value);
        least[c] = std::min(least[c], value);
      }
      Array out(kept);
      device->kernels().reduce(Reduction::sum, in, out);
      EXPECT_EQ(out.values(), sums) << set;
      device->kernels().reduce(Reduction::max, in, out);
      EXPECT_EQ(out.values(), most) << set;
      device->kernels().reduce(Reduction::min, in, out);
      EXPECT_EQ(out.values(), least) << set;
      device->kernels().reduce(Reduction::mean, in, out);
      const double count = static_cast<double>(shape.product() / kept.product());
      for (double& sum : sums) sum /= count;
      test::expect_near(out.values(), sums, 1e-7, "mean");
    }
  }
}

TEST(Reduce, SumsOfManyFloatsKeepTheirDigits) {
  const auto device = make_device("cpu");
  Array in({1000003}), out({1});
  device->kernels().fill(in, 0.1);
  device->kernels().reduce(Reduction::sum, in, out);
  EXPECT_NEAR(out.values()[0], 100000.3 + 1000003 * 1.490116e-9, 0.01);
}

/// Rows shorter and longer than vectors, with what a comparison in vectors could lose at every place: NaN and
/// the extreme itself. (vector_bits_test.cc has the zeros of both signs.)
TEST(Reduce, ExtremesOfRowsAreFoundAtEveryPlace) {
  const auto device = make_device("cpu");
  Generator generator(7);
  for (const std::int64_t count : {1, 31, 32, 33, 63, 64, 100}) {
    Array in({count, count}), out({count, 1});
    for (const float special : {std::nanf(""), -std::nanf(""), 9.0F, -9.0F, HUGE_VALF, -HUGE_VALF}) {
      auto* const values = in.view().as<float>();
      const auto numel = static_cast<std::size_t>(count * count);
      generator.uniform(std::span(values, numel), -4.0F, 4.0F);
      for (std::int64_t i = 0; i < count; ++i) values[i * count + i] = special;
      for (const Reduction op : {Reduction::max, Reduction::min}) {
        device->kernels().reduce(op, in, out);
        for (std::int64_t i = 0; i < count; ++i) {
          const float* const row = values + i * count;
          const bool largest = op == Reduction::max;
          const float expected = std::isnan(special) ? special
                                 : largest           ? *std::max_element(row, row + count)
                                                     : *std::min_element(row, row + count);
          const float found = out.view().as<float>()[i];
          ASSERT_EQ(std::isnan(found), std::isnan(expected)) << count << " " << i << " " << special;
          if (!std::isnan(expected)) {
            ASSERT_EQ(found, expected) << count << " " << i << " " << special;
          }
        }
      }
    }
  }
}

TEST(Reduce, NothingIntegersAndNan) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  Array none({2, 0}), out({2, 1}), ints({2, 2}, DType::i64), total({1, 1}, DType::i64), nan({2, 2});
  kernels.reduce(Reduction::sum, none, out);
  EXPECT_EQ(out.values(), (std::vector<double>{0, 0}));
  EXPECT_THROW(kernels.reduce(Reduction::max, none, out), UsageError);
  ints.set({1, 2, 3, 4});
  kernels.reduce(Reduction::sum, ints, total);
  EXPECT_EQ(total.values()[0], 10);
  EXPECT_THROW(kernels.reduce(Reduction::mean, ints, total), UsageError);
  nan.set({1, std::nan(""), 2, 3});
  kernels.reduce(Reduction::max, nan, out);
  EXPECT_TRUE(std::isnan(out.values()[0]));
  EXPECT_EQ(out.values()[1], 3);
  Array wrong({2, 3});
  EXPECT_THROW(kernels.reduce(Reduction::sum, nan, wrong), UsageError);
}

TEST(Argmax, FirstOfTheLargest) {
  const auto device = make_device("cpu");
  Array in({3, 4}), out({3, 1}, DType::i64), wrong({3, 1});
  in.set({1, 3, 3, 2, 5, 1, 0, 5, -1, -2, std::nan(""), 9});
  device->kernels().argmax(in, out);
  EXPECT_EQ(out.values(), (std::vector<double>{1, 0, 2}));
  EXPECT_THROW(device->kernels().argmax(in, wrong), UsageError);
}

TEST(Index, SelectsAndAddsRows) {
  const auto device = make_device("cpu");
  Kernels& kernels = device->kernels();
  Array table({3, 2}), index({4}, DType::i64), rows({4, 2});
  table.set({0, 1, 10, 11, 20, 21});
  index.set({2, 0, 2, 1});
  kernels.index_select(table, index, rows);
  EXPECT_EQ(rows.values(), (std::vector<double>{20, 21, 0, 1, 20, 21, 10, 11}));
  kernels.index_add(rows, index, table);
  EXPECT_EQ(table.values(), (std::vector<double>{0, 2, 20, 22, 60, 63}));
  Array bytes({3, 2}, DType::u8), picked({4, 2}, DType::u8);
  bytes.set({1, 2, 3, 4, 5, 6});
  kernels.index_select(bytes, index, picked);
  EXPECT_EQ(picked.values(), (std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4}));
}

TEST(Index, RefusesRowsOutsideAndSaysWhich) {
  const auto device = make_device("cpu");
  Array table({3, 2}), index({2}, DType::i64), rows({2, 2}), floats({2});
  for (const double bad : {3.0, -1.0}) {
    index.set({0, bad});
    EXPECT_THROW(device->kernels().index_add(rows, index, table), UsageError);
    try {
      device->kernels().index_select(table, index, rows);
      FAIL() << "did not throw";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("index[1] expected 0 to 2, got"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(device->kernels().index_select(table, floats, rows), UsageError);
}

}  // namespace
}  // namespace dtrain
