// Kernels that work along one dimension, and products of integers, beside the CPU's in float64.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

class GpuLines : public testing::Test {
 protected:
  void check(const std::vector<Arg>& args, std::int64_t terms, const std::string& what, const Call& call) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      compare(*gpu, dtype, args, bound_of(dtype, terms), what, call);
    }
  }
  /// i64 of `shape`, each in [0, limit).
  Arg indices(const Dims& shape, std::int64_t limit) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.product(); ++i) values.push_back(static_cast<double>(i * 7 % limit));
    return integers_arg(shape, DType::i64, values);
  }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{11};
};

Dims along(int dim, std::int64_t extent) {
  Dims shape = {5, 6, 7};
  shape[dim] = extent;
  return shape;
}

/// The same array with its first two dimensions changed round.
View turned(View view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

TEST_F(GpuLines, GatherAndScatterAdd) {
  for (const int dim : {0, 1, 2}) {
    for (const std::int64_t picks : {0, 1, 40}) {
      const Dims table = {5, 6, 7}, picked = along(dim, picks);
      const Arg index = indices(picked, table[dim]);
      check({random_arg(table, generator), index, zeros_arg(picked)}, 1, "gather",
            [&](Kernels& kernels, const std::vector<View>& v) { kernels.gather(v[0], dim, v[1], v[2]); });
      check(
          {random_arg(picked, generator), index, random_arg(table, generator)}, 40, "scatter_add",
          [&](Kernels& kernels, const std::vector<View>& v) { kernels.scatter_add(v[0], dim, v[1], v[2]); });
    }
  }
  check({random_arg({9, 4}, generator), indices({3, 4}, 9), zeros_arg({3, 4})}, 1, "gather by strides",
        [](Kernels& kernels, const std::vector<View>& v) {
          kernels.gather(turned(v[0]), 1, turned(v[1]), turned(v[2]));
        });
}

TEST_F(GpuLines, RunningSums) {
  for (const Dims& shape : {Dims{1}, Dims{31}, Dims{3, 33, 2}, Dims{2, 700}, Dims{0, 4}}) {
    for (int dim = 0; dim < shape.rank(); ++dim) {
      for (const bool reverse : {false, true}) {
        check(
            {random_arg(shape, generator), zeros_arg(shape)}, shape[dim], "cumsum",
            [&](Kernels& kernels, const std::vector<View>& v) { kernels.cumsum(v[0], dim, reverse, v[1]); });
      }
    }
  }
  compare(*gpu, DType::f32, {indices({4, 70}, 60), indices({4, 70}, 2)}, 0, "cumsum of int64",
          [](Kernels& kernels, const std::vector<View>& v) { kernels.cumsum(v[0], 1, false, v[1]); });
}

// Few different values, so that equal ones have an order to keep, and some that are not numbers.
TEST_F(GpuLines, SortedLinesKeepTheOrderOfEquals) {
  for (const auto& [shape, dim] : {std::pair(Dims{1}, 0),
                                   {Dims{2}, 0},
                                   {Dims{37}, 0},
                                   {Dims{1024}, 0},
                                   {Dims{3, 50, 4}, 1},
                                   {Dims{6, 129}, 1},
                                   {Dims{65, 3}, 0}}) {
    Arg in = zeros_arg(shape);
    auto values = in.array.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = i % 11 == 3 ? std::nan("") : static_cast<double>(i * 13 % 9) - 4;
    }
    in.array.set(values);
    for (const bool descending : {false, true}) {
      for (const std::int64_t wanted : {shape[dim], (shape[dim] + 1) / 2}) {
        Dims first = shape;
        first[dim] = wanted;
        check({in, zeros_arg(first), indices(first, 1)}, 1, "sort",
              [&, at = dim](Kernels& kernels, const std::vector<View>& v) {
                kernels.sort(v[0], at, descending, v[1], v[2]);
              });
      }
    }
  }
}

TEST_F(GpuLines, ProductsOfIntegersWrap) {
  const Arg a = integers_arg({2, 3, 4}, DType::i64, std::vector<double>(24, 3.0e9));
  Arg b = indices({2, 4, 5}, 17);
  b.array.view().as<std::int64_t>()[3] = std::int64_t{1} << 62;
  for (const bool accumulate : {false, true}) {
    compare(*gpu, DType::f32, {a, b, indices({2, 3, 5}, 8)}, 0, "matmul of int64",
            [&](Kernels& kernels, const std::vector<View>& v) {
              kernels.matmul(v[0], v[1], {}, Activation::none, accumulate, v[2]);
            });
  }
}

TEST_F(GpuLines, AnIndexOutOfRangeIsNamedByTheNextWait) {
  std::int64_t wrong[] = {0, 7, 2};
  void* index = gpu->allocate(sizeof wrong);
  void* memory = gpu->allocate(64);
  gpu->copy(index, wrong, sizeof wrong, CopyKind::host_to_device, gpu->compute_stream());
  const View picks{index, DType::i64, {3}, {1}}, three{memory, DType::f32, {3}, {1}};
  const View five{static_cast<float*>(memory) + 8, DType::f32, {5}, {1}};
  gpu->kernels().fill(three, 0);
  gpu->kernels().fill(five, 0);
  const auto expect_named = [&](const std::string& operation) {
    try {
      gpu->compute_stream().synchronize();
      FAIL() << "an index of 7 passed for one of 5";
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(operation + ": element 1 of index expected 0 to 4, got 7"), std::string::npos)
          << text;
    }
  };
  gpu->kernels().gather(five, 0, picks, three);
  expect_named("gather");
  gpu->kernels().scatter_add(three, 0, picks, five);
  expect_named("scatter_add");
  gpu->deallocate(index, sizeof wrong);
  gpu->deallocate(memory, 64);
}

}  // namespace
}  // namespace dtrain::test
