// Matrix products in every combination of transposition, broadcast, bias, activation and accumulation.
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

View transposed(View view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

/// A [B, R, C] operand, stored transposed or broadcast over the batch when asked.
struct Operand {
  Operand(std::int64_t b, std::int64_t r, std::int64_t c, bool transpose, bool broadcast,
          Generator& generator, DType dtype)
      : array(Array::random({broadcast ? 1 : b, transpose ? c : r, transpose ? r : c}, generator, dtype)),
        view(transpose ? transposed(array.view()) : array.view()) {
    if (broadcast) view.strides[0] = 0;
    view.shape[0] = b;
  }
  double at(std::int64_t b, std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(b * view.strides[0] + r * view.strides[1] + c * view.strides[2])];
  }
  Array array;
  View view;
  std::vector<double> values = array.values();
};

struct Size {
  std::int64_t b, m, k, n;
};

void check(const Size& s, int flags, DType dtype) {
  const bool ta = flags & 1, tb = flags & 2, wide_a = flags & 4, wide_b = flags & 8, with_bias = flags & 16,
             adds = flags & 32;
  SCOPED_TRACE("B " + std::to_string(s.b) + " M " + std::to_string(s.m) + " K " + std::to_string(s.k) +
               " N " + std::to_string(s.n) + " flags " + std::to_string(flags) + " " +
               std::string(name_of(dtype)));
  Generator generator(9);
  const Operand a(s.b, s.m, s.k, ta, wide_a, generator, dtype),
      b(s.b, s.k, s.n, tb, wide_b, generator, dtype);
  const Array bias = Array::random({s.n}, generator, dtype);
  Array out = Array::random({s.b, s.m, s.n}, generator, dtype);
  const auto before = out.values(), shift = bias.values();
  std::vector<double> expected;
  for (std::int64_t i = 0; i < s.b; ++i)
    for (std::int64_t m = 0; m < s.m; ++m)
      for (std::int64_t n = 0; n < s.n; ++n) {
        double sum = with_bias ? shift[static_cast<std::size_t>(n)] : 0;
        for (std::int64_t k = 0; k < s.k; ++k) sum += a.at(i, m, k) * b.at(i, k, n);
        if (with_bias && sum < 0) sum = 0;
        expected.push_back(adds ? sum + before[expected.size()] : sum);
      }
  make_device("cpu")->kernels().matmul(a.view, b.view, with_bias ? bias.view() : View{},
                                       with_bias ? Activation::relu : Activation::none, adds, out);
  test::expect_near(out.values(), expected, test::sum_tolerance(s.k + 1, dtype), "matmul");
}

TEST(Matmul, EveryCombination) {
  for (const Size& size : {Size{1, 1, 1, 1},
                           {1, 5, 7, 3},
                           {3, 4, 1, 6},
                           {2, 1, 9, 1},
                           {4, 17, 33, 10},
                           {2, 1, 5, 4},
                           {2, 6, 5, 1}}) {
    for (int flags = 0; flags < 64; ++flags) {
      if ((flags & 16) != 0 && (flags & 32) != 0) continue;
      check(size, flags, DType::f32);
      if (flags < 16) check(size, flags, DType::f64);
      if (flags % 8 == 0) check(size, flags, DType::bf16);
    }
  }
  check({1, 128, 800, 128}, 2 + 16, DType::f32);
  check({1, 128, 800, 10}, 1, DType::f32);
}

// Lines at such distances meet in the same sets of the caches; they are copied where that slows products
// down.
TEST(Matmul, LinesSomeKibibytesApart) {
  for (const Size& size :
       {Size{1, 40, 33, 512}, {1, 512, 33, 40}, {1, 130, 64, 1024}, {1, 1024, 64, 130}, {1, 33, 1024, 40}}) {
    for (const int flags : {0, 1, 2, 3, 16 + 1, 32, 32 + 1}) check(size, flags, DType::f32);
  }
}

TEST(Matmul, EmptySums) {
  const auto device = make_device("cpu");
  Generator generator(1);
  const Array a({1, 2, 0}), b({1, 0, 3}), none({1, 0, 4}), c = Array::random({1, 4, 3}, generator);
  Array out = Array::random({1, 2, 3}, generator), nothing({1, 0, 3});
  device->kernels().matmul(a, b, View{}, Activation::none, false, out);
  EXPECT_EQ(out.values(), std::vector<double>(6, 0.0));
  EXPECT_NO_THROW(device->kernels().matmul(none, c, View{}, Activation::none, false, nothing));
}

TEST(Matmul, StridedBothWays) {
  Generator generator(2);
  const Array whole = Array::random({1, 8, 12}, generator), b = Array::random({1, 6, 5}, generator);
  View a = whole.view();
  a.shape = {1, 4, 6};
  a.strides = {96, 24, 2};
  Array dense({1, 4, 6}), out({1, 4, 5}), expected({1, 4, 5});
  const auto device = make_device("cpu");
  device->kernels().copy(a, dense);
  device->kernels().matmul(a, b, View{}, Activation::none, false, out);
  device->kernels().matmul(dense, b, View{}, Activation::none, false, expected);
  EXPECT_EQ(out.values(), expected.values());
}

/// Views whose strides interleave: every second row or column of an odd number of them. Libraries take none
/// for a layout. Each is operand and result once.
TEST(Matmul, StridesThatInterleave) {
  const auto device = make_device("cpu");
  Generator generator(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Dims& strides :
         {Dims{35, 14, 1}, Dims{35, 7, 2}, Dims{35, 1, 7}, Dims{1, 35, 7}, Dims{0, 7, 2}}) {
      SCOPED_TRACE(strides.to_string() + " " + std::string(name_of(dtype)));
      const Array memory = Array::random({200}, generator, dtype),
                  b = Array::random({4, 4, 6}, generator, dtype);
      View a = memory.view();
      a.shape = {4, 3, 4};
      a.strides = strides;
      Array dense({4, 3, 4}, dtype), out({4, 3, 6}, dtype), expected({4, 3, 6}, dtype);
      device->kernels().copy(a, dense);
      device->kernels().matmul(a, b, View{}, Activation::none, false, out);
      device->kernels().matmul(dense, b, View{}, Activation::none, false, expected);
      test::expect_near(out.values(), expected.values(), test::sum_tolerance(5, dtype), "operand");
      if (strides[0] == 0) continue;
      const Array eye = Array::random({4, 4, 4}, generator, dtype);
      device->kernels().matmul(dense, eye, View{}, Activation::none, false, a);
      Array same({4, 3, 4}, dtype);
      device->kernels().matmul(dense, eye, View{}, Activation::none, false, same);
      Array got({4, 3, 4}, dtype);
      device->kernels().copy(a, got);
      test::expect_near(got.values(), same.values(), test::sum_tolerance(5, dtype), "result");
    }
  }
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const auto device = make_device("cpu");
  Array a({1, 2, 3}), b({1, 4, 2}), out({1, 2, 2}), good({1, 3, 2}), bias({2});
  Array ints({1, 2, 3}, DType::i32), more({1, 3, 2}, DType::i32), result({1, 2, 2}, DType::i32);
  Kernels& kernels = device->kernels();
  EXPECT_THROW(kernels.matmul(a, b, View{}, Activation::none, false, out), UsageError);
  EXPECT_THROW(kernels.matmul(a, good, bias, Activation::none, true, out), UsageError);
  EXPECT_THROW(kernels.matmul(ints, more, View{}, Activation::none, false, result), UsageError);
}

}  // namespace
}  // namespace dtrain
