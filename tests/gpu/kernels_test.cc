// Kernels of the CUDA device against the CPU's in float64, where the table of operations (operations_test.cc)
// does not look. Without a GPU every test fails: this program is for machines that have one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

class Gpu : public testing::Test {
 protected:
  void check(const std::vector<Arg>& args, std::int64_t terms, const std::string& what, const Call& call) {
    for (const DType dtype : kFloats) compare(*gpu, dtype, args, bound_of(dtype, terms), what, call);
  }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{5};
};

TEST_F(Gpu, ArithmeticOfIntegers) {
  const std::vector<Arg> integers = {integers_arg({4}, DType::i64, {7, -7, 3, 2}),
                                     integers_arg({4}, DType::i64, {2, 2, 3, 10}),
                                     integers_arg({4}, DType::i64, {0, 0, 0, 0})};
  for (const BinaryOp op : {BinaryOp::add, BinaryOp::mul, BinaryOp::div, BinaryOp::pow}) {
    compare(*gpu, DType::f32, integers, 0, "int64",
            [&](Kernels& kernels, const std::vector<View>& v) { kernels.binary(op, v[0], v[1], v[2]); });
  }
}

TEST_F(Gpu, FillCopyAffineAccumulateWhere) {
  check({zeros_arg({37})}, 1, "fill",
        [](Kernels& kernels, const std::vector<View>& v) { kernels.fill(v[0], 1.5); });
  check({random_arg({2, 3, 8, 5}, generator), zeros_arg({2, 3, 8, 5}, Layout::channels_last)}, 1,
        "copy to channels last",
        [](Kernels& kernels, const std::vector<View>& v) { kernels.copy(v[0], v[1]); });
  check({random_arg({65}, generator), random_arg({65}, generator)}, 1, "affine and accumulate",
        [](Kernels& kernels, const std::vector<View>& v) {
          kernels.accumulate(v[0], 0.5, v[1]);
          kernels.affine(v[1], 2.0, 0.25, v[1]);
        });
  std::vector<double> pixels;
  for (int i = 0; i < 256; ++i) pixels.push_back(i);
  check({integers_arg({256}, DType::u8, pixels), zeros_arg({256})}, 1, "pixels",
        [](Kernels& kernels, const std::vector<View>& v) { kernels.affine(v[0], 1.0 / 255, 0, v[1]); });
  check({integers_arg({6}, DType::u8, {0, 1, 0, 2, 0, 0}), random_arg({6}, generator),
         random_arg({6}, generator), zeros_arg({6})},
        1, "where",
        [](Kernels& kernels, const std::vector<View>& v) { kernels.where(v[0], v[1], v[2], v[3]); });
}

// What sources write as numbers and batches carry as bytes is the same to the last bit.
TEST_F(Gpu, BytesBecomeTheirQuotients) {
  constexpr std::int64_t kCount = 1027;
  std::vector<std::uint8_t> bytes(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
  void *const from = gpu->allocate(kCount), *const to = gpu->allocate(kCount * sizeof(float));
  gpu->copy(from, bytes.data(), kCount, CopyKind::host_to_device, gpu->compute_stream());
  gpu->kernels().affine({from, DType::u8, {kCount}, {1}}, 1.0 / 255, 0.0, {to, DType::f32, {kCount}, {1}});
  std::vector<float> values(kCount);
  gpu->copy(values.data(), to, kCount * sizeof(float), CopyKind::device_to_host, gpu->compute_stream());
  gpu->compute_stream().synchronize();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(bytes[i]) / 255.0F);
  gpu->deallocate(from, kCount);
  gpu->deallocate(to, kCount * sizeof(float));
}

// Small numbers beside a large one, infinities and what is not a number: as a sum of doubles has them.
TEST_F(Gpu, SumsOfFloatsKeepWhatAFloatDrops) {
  for (const std::int64_t count : {300, 70000}) {
    for (const Dims& shape : {Dims{count, 1}, Dims{count, 40}}) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < shape.product(); ++i) {
        const std::int64_t row = i / shape[1];
        values.push_back(row == 0           ? 33554432.0
                         : row == count - 1 ? -33554432.0
                                            : 0.3125 + (row % 7) * 0.0625);
      }
      Arg in = zeros_arg(shape);
      in.array.set(values);
      compare(
          *gpu, DType::f32, {in, zeros_arg({1, shape[1]})}, 1e-7, "sum " + shape.to_string(),
          [](Kernels& kernels, const std::vector<View>& v) { kernels.reduce(Reduction::sum, v[0], v[1]); });
    }
  }
  Arg in = zeros_arg({3, 500});
  std::vector<double> values(1500, 1.0);
  values[77] = INFINITY;
  values[577] = INFINITY, values[578] = -INFINITY;
  in.array.set(values);
  compare(*gpu, DType::f32, {in, zeros_arg({3, 1})}, 0, "sums without a bound",
          [](Kernels& kernels, const std::vector<View>& v) { kernels.reduce(Reduction::sum, v[0], v[1]); });
  Arg logits = zeros_arg({4, 50});
  values.assign(200, 0.5);
  for (std::size_t i = 0; i < 49; ++i) values[i] = -INFINITY;
  values[60] = 1e6;
  values[110] = 3e38;
  logits.array.set(values);
  compare(*gpu, DType::f32, {logits, zeros_arg({4, 50})}, 1e-7, "log_softmax of far numbers",
          [](Kernels& kernels, const std::vector<View>& v) { kernels.log_softmax(v[0], v[1]); });
}

// What a step of bf16 or f16 adds to a gradient of f32 may be far below such a number's last bit of the
// total.
TEST_F(Gpu, ProductsOfHalvesAreAddedToAnF32AsTheyAre) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Array factor({1, 1, 1}, dtype), total({1, 1, 1}, DType::f32);
    factor.set({1.0 / 64});
    total.set({1.0});
    const auto on_gpu = [&](const Array& array) {
      View view = array.view();
      view.data = gpu->allocate(64);
      gpu->copy(view.data, array.view().data, size_of(view.dtype), CopyKind::host_to_device,
                gpu->compute_stream());
      return view;
    };
    const View a = on_gpu(factor), sum = on_gpu(total);
    for (int pass = 0; pass < 2; ++pass) gpu->kernels().matmul(a, a, View{}, Activation::none, true, sum);
    gpu->copy(total.view().data, sum.data, sizeof(float), CopyKind::device_to_host, gpu->compute_stream());
    gpu->compute_stream().synchronize();
    EXPECT_EQ(total.values()[0], 1.0 + 2.0 / 4096) << name_of(dtype);
    for (const View& view : {a, sum}) gpu->deallocate(view.data, 64);
  }
}

TEST_F(Gpu, MatrixProducts) {
  struct Case {
    std::int64_t batch, m, n, k;
    bool a_transposed, b_transposed, bias, relu, accumulate;
  };
  for (const Case& c : {Case{1, 64, 128, 800, false, true, true, true, false},
                        {1, 5, 7, 3, false, false, true, false, false},
                        {1, 128, 800, 64, true, false, false, false, false},
                        {1, 33, 10, 128, false, true, true, false, false},
                        {4, 16, 24, 32, false, true, false, false, true},
                        {1, 64, 128, 256, true, true, false, true, false},
                        {1, 1, 1, 1, false, false, true, true, false},
                        {3, 8, 8, 8, false, false, false, false, false}}) {
    const Dims a = c.a_transposed ? Dims{c.batch, c.k, c.m} : Dims{c.batch, c.m, c.k};
    const Dims b = c.b_transposed ? Dims{c.batch, c.n, c.k} : Dims{c.batch, c.k, c.n};
    const auto turned = [](View view, bool transposed) {
      if (!transposed) return view;
      std::swap(view.shape[1], view.shape[2]);
      std::swap(view.strides[1], view.strides[2]);
      return view;
    };
    check({random_arg(a, generator), random_arg(b, generator),
           c.bias ? random_arg({c.n}, generator) : null_arg(), random_arg({c.batch, c.m, c.n}, generator)},
          c.k, "matmul", [&](Kernels& kernels, const std::vector<View>& v) {
            kernels.matmul(turned(v[0], c.a_transposed), turned(v[1], c.b_transposed), v[2],
                           c.relu ? Activation::relu : Activation::none, c.accumulate, v[3]);
          });
  }
}

// The largest is found while the exponentials are summed: late, early, again and again, or not at all. Rows
// of all lengths, as far as a lane keeps them and beyond.
TEST_F(Gpu, SoftmaxWhereverTheLargestIs) {
  for (const std::int64_t columns : {1, 31, 33, 256, 300, 1001, 5000}) {
    Arg logits = zeros_arg({6, columns});
    std::vector<double> values(static_cast<std::size_t>(6 * columns), -INFINITY);
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto at = [&](std::int64_t row) -> double& {
        return values[static_cast<std::size_t>(row * columns + c)];
      };
      at(0) = static_cast<double>(200 * c / columns) / 8;  // bf16 has it exactly
      at(1) = -at(0);
      at(2) = c == columns - 1 ? 0.0 : -INFINITY;  // row 3: nothing but -infinity
      at(4) = c == columns / 2 ? INFINITY : 1.0;
      at(5) = c == columns / 2 ? NAN : 1.0;
    }
    logits.array.set(values);
    check({logits, zeros_arg({6, columns})}, 8, "log_softmax of " + std::to_string(columns),
          [](Kernels& kernels, const std::vector<View>& v) { kernels.log_softmax(v[0], v[1]); });
  }
}

// What is far from the largest adds little to it, and that little is the loss.
TEST_F(Gpu, SoftmaxKeepsWhatLittleTheOthersAdd) {
  constexpr std::int64_t kColumns = 500;
  Arg logits = zeros_arg({1, kColumns});
  std::vector<double> values(kColumns, 0.0);
  values[kColumns - 1] = 25.0;
  logits.array.set(values);
  Arg scaled = zeros_arg({1, kColumns});
  compare(*gpu, DType::f32, {logits, scaled}, 1e-6, "log_softmax of one far above the rest, times 1e9",
          [](Kernels& kernels, const std::vector<View>& v) {
            kernels.log_softmax(v[0], v[1]);
            kernels.affine(v[1], 1e9, 0.0, v[1]);
          });
}

/// The first `columns` of a matrix.
View first_columns(View matrix, std::int64_t columns) {
  matrix.shape = {matrix.shape[0], columns};
  return matrix;
}

// A warp a row and a block a row, in packs and one by one, with elements behind the last pack; in memory of
// their own and in the logits'; without slopes.
TEST_F(Gpu, SlopesOfLosses) {
  struct Case {
    std::int64_t columns, stride;
  };
  for (const Case& c : {Case{1, 1}, Case{300, 300}, Case{2049, 2049}, Case{2052, 2052}, Case{9002, 9008}}) {
    Arg logits = random_arg({5, c.stride}, generator), losses = zeros_arg({5});
    std::vector<double> values = logits.array.values();
    const auto row = [&](std::int64_t r) { return values.begin() + r * c.stride; };
    std::fill(row(2), row(3), -INFINITY);
    *(row(2) + c.columns - 1) = 0;  // of all there is
    *(row(3) + c.columns / 2) = 90;
    logits.array.set(values);
    Arg work = zeros_arg({5, c.stride});
    const double last = static_cast<double>(c.columns - 1);
    const Arg target = integers_arg({5}, DType::i64, {0, last, last, 7, std::floor(last / 2)});
    for (Arg* fixed : {&logits, &work, &losses}) fixed->follows = false;
    const std::string what = "slopes of " + std::to_string(c.columns);
    check({logits, work, losses, zeros_arg({5, c.stride}), target}, 8, what,
          [&](Kernels& kernels, const std::vector<View>& v) {
            kernels.copy(v[0], v[1]);
            kernels.cross_entropy_slopes(first_columns(v[1], c.columns), v[4], 7, v[2],
                                         first_columns(v[3], c.columns));
            kernels.fill(v[1], 0);
          });
    for (const bool wants_slopes : {true, false}) {
      check({logits, work, losses, target}, 8, what + (wants_slopes ? " in place" : " not wanted"),
            [&](Kernels& kernels, const std::vector<View>& v) {
              kernels.copy(v[0], v[1]);
              const View own = first_columns(v[1], c.columns);
              kernels.cross_entropy_slopes(own, v[3], 7, v[2], wants_slopes ? own : View{});
              if (!wants_slopes) kernels.fill(v[1], 0);
            });
    }
  }
}

/// All but the first element of a vector, which is then aligned to nothing but its elements.
View behind_first(const View& vector) {
  View rest = vector;
  rest.data = static_cast<std::byte*>(vector.data) + size_of(vector.dtype);
  rest.shape = {vector.numel() - 1};
  return rest;
}

// Of a slot whose arrays are aligned, and of one where one of them is not.
TEST_F(Gpu, OptimizerStepsDoNotDependOnAlignment) {
  const auto array = [&] { return random_arg({20'003}, generator); };
  const std::vector<Arg> args = {array(), array(), array(), array()};
  for (const int unaligned : {-1, 0, 1, 2, 3}) {
    check(args, 4, "adamw, unaligned: " + std::to_string(unaligned),
          [&](Kernels& kernels, const std::vector<View>& v) {
            std::vector<View> slot;
            for (int i = 0; i < 4; ++i) {
              View view = i == unaligned ? behind_first(v[static_cast<std::size_t>(i)])
                                         : v[static_cast<std::size_t>(i)];
              view.shape = {20'002};
              slot.push_back(view);
            }
            kernels.fill(v[3], 0.5);  // variances are positive
            const OptimizerSlot slots[] = {{slot[0], slot[1], slot[2], slot[3]}};
            kernels.adamw(slots, {.step = 3});
          });
  }
}

TEST_F(Gpu, OptimizerSteps) {
  const std::vector<Arg> args = {random_arg({20, 1, 3, 3}, generator), random_arg({20, 1, 3, 3}, generator),
                                 random_arg({20, 1, 3, 3}, generator), random_arg({30001}, generator),
                                 random_arg({30001}, generator),       random_arg({30001}, generator)};
  for (const bool nesterov : {false, true}) {
    check(args, 1, "sgd", [&](Kernels& kernels, const std::vector<View>& v) {
      const OptimizerSlot slots[] = {{v[0], v[1], v[2], {}}, {v[3], v[4], v[5], {}}};
      kernels.sgd(slots, {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-2, .nesterov = nesterov});
      kernels.sgd(slots, {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-2, .nesterov = nesterov});
    });
  }
  check({random_arg({777}, generator), random_arg({777}, generator), zeros_arg({777}), zeros_arg({777})}, 4,
        "adamw", [](Kernels& kernels, const std::vector<View>& v) {
          const OptimizerSlot slots[] = {{v[0], v[1], v[2], v[3]}};
          kernels.adamw(slots, {.step = 1});
          kernels.adamw(slots, {.step = 2});
        });
}

// Nothing else is under way when the optimizer meets new parameters: its table must be there for its kernel.
TEST_F(Gpu, OptimizerTablesComeBeforeTheirKernels) {
  constexpr std::int64_t kCount = 12;
  const std::size_t bytes = kCount * sizeof(float);
  void *const values = gpu->allocate(bytes), *const ones = gpu->allocate(bytes);
  for (std::int64_t count = 1; count <= kCount; ++count) {  // each has a table of its own
    const View param{values, DType::f32, {count}, {1}}, grad{ones, DType::f32, {count}, {1}};
    gpu->kernels().fill(param, 1.0);
    gpu->kernels().fill(grad, 1.0);
    gpu->compute_stream().synchronize();
    const OptimizerSlot slots[] = {{param, grad, {}, {}}};
    gpu->kernels().sgd(slots, {.lr = 0.5});
    std::vector<float> results(static_cast<std::size_t>(count));
    gpu->copy(results.data(), values, results.size() * sizeof(float), CopyKind::device_to_host,
              gpu->compute_stream());
    gpu->compute_stream().synchronize();
    EXPECT_EQ(std::count(results.begin(), results.end(), 0.5F), count);
  }
  gpu->deallocate(values, bytes);
  gpu->deallocate(ones, bytes);
}

// Whatever place it is at, in the second of two arrays that are longer than a block's part.
TEST_F(Gpu, OneValueThatIsNotFiniteIsFoundAndStays) {
  constexpr std::int64_t kCount = 20'000;
  void* const memory = gpu->allocate((2 * kCount + 1) * sizeof(float));
  auto* const values = static_cast<float*>(memory);
  const View first{values, DType::f32, {kCount}, {1}}, second{values + kCount, DType::f32, {kCount}, {1}},
      found{values + 2 * kCount, DType::f32, {1}, {1}};
  const View both[] = {first, second};
  const auto is_found = [&] {
    float flag = -1;
    gpu->copy(&flag, found.data, sizeof flag, CopyKind::device_to_host, gpu->compute_stream());
    gpu->compute_stream().synchronize();
    return flag != 0;
  };
  for (const std::int64_t place : {std::int64_t{0}, kCount / 2, kCount - 1}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      for (const View& view : both) gpu->kernels().fill(view, std::numeric_limits<float>::max());
      gpu->kernels().fill(found, 0.0);
      gpu->kernels().find_not_finite(both, found);
      EXPECT_FALSE(is_found());
      gpu->kernels().fill({values + kCount + place, DType::f32, {1}, {1}}, bad);
      gpu->kernels().find_not_finite(both, found);
      EXPECT_TRUE(is_found()) << place << " " << bad;
      gpu->kernels().find_not_finite({both, 1}, found);
      EXPECT_TRUE(is_found());
    }
  }
  gpu->deallocate(memory, (2 * kCount + 1) * sizeof(float));
}

// Into pinned memory a copy only begins; before the wait is over nothing may be read.
TEST_F(Gpu, TheHostWaitsForCopiesIntoPinnedMemory) {
  constexpr std::size_t kCount = 5000, kBytes = kCount * sizeof(float);
  void* const memory = gpu->allocate(kBytes);
  auto* const pinned = static_cast<float*>(gpu->allocate_pinned(kBytes));
  const View values{memory, DType::f32, {static_cast<std::int64_t>(kCount)}, {1}};
  for (int round = 1; round <= 8; ++round) {
    std::fill_n(pinned, kCount, -1.0F);
    gpu->kernels().fill(values, round);
    gpu->copy(pinned, memory, kBytes, CopyKind::device_to_host, gpu->compute_stream());
    gpu->compute_stream().synchronize();
    EXPECT_EQ(std::count(pinned, pinned + kCount, static_cast<float>(round)), static_cast<int>(kCount));
  }
  gpu->deallocate_pinned(pinned, kBytes);
  gpu->deallocate(memory, kBytes);
}

TEST_F(Gpu, FaultsAreThrownByTheNextWait) {
  std::int64_t wrong[] = {0, 10};
  void* target = gpu->allocate(sizeof wrong);
  void* memory = gpu->allocate(1024);
  gpu->copy(target, wrong, sizeof wrong, CopyKind::host_to_device, gpu->compute_stream());
  const View matrix{memory, DType::f32, {2, 10}, {10, 1}};
  const View log_probs{static_cast<float*>(memory) + 32, DType::f32, {2, 10}, {10, 1}};
  const View losses{static_cast<float*>(memory) + 64, DType::f32, {2}, {1}};
  gpu->kernels().fill(matrix, 0);
  gpu->kernels().cross_entropy(matrix, {target, DType::i64, {2}, {1}}, std::nullopt, log_probs, losses);
  EXPECT_THROW(gpu->compute_stream().synchronize(), UsageError);
  EXPECT_NO_THROW(gpu->compute_stream().synchronize());
  gpu->deallocate(target, sizeof wrong);
  gpu->deallocate(memory, 1024);
}

TEST_F(Gpu, CountsMemoryAndNamesTheLackOfIt) {
  const std::size_t before = gpu->allocated_bytes();
  void* memory = gpu->allocate(1 << 20);
  EXPECT_EQ(gpu->allocated_bytes(), before + (1 << 20));
  gpu->deallocate(memory, 1 << 20);
  EXPECT_EQ(gpu->allocated_bytes(), before);
  EXPECT_GE(gpu->peak_allocated_bytes(), before + (1 << 20));
  EXPECT_THROW(gpu->allocate(std::size_t{1} << 45), DeviceError);
  EXPECT_NO_THROW(gpu->deallocate(gpu->allocate(16), 16));
}

}  // namespace
}  // namespace dtrain::test
