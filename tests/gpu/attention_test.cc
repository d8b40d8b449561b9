// Attention of the CUDA device against the CPU's in float64, by masks and extents of tiles; the table of
// operations has the rest.
#include <gtest/gtest.h>

#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

class GpuAttention : public testing::Test {
 protected:
  /// Forward and backward; which of lengths, segments, bias and dropout take part.
  struct Masks {
    bool lengths = false, segments = false, bias = false, drops = false;
  };
  void check(const Dims& query, std::int64_t keys, std::int64_t value_width, const AttentionRule& rule,
             const Masks& with, const std::string& what) {
    const std::int64_t batch = query[0], groups = query[1], shared = query[2], queries = query[3],
                       width = query[4];
    const Dims key = {batch, groups, keys, width}, value = {batch, groups, keys, value_width};
    const Dims output = {batch, groups, shared, queries, value_width};
    std::vector<double> lengths, segments;
    for (std::int64_t b = 0; b < batch; ++b)
      lengths.push_back(static_cast<double>(b == 0 ? keys : keys / (2 * b)));
    for (std::int64_t i = 0; i < batch * keys; ++i) segments.push_back(static_cast<double>(i / 13));
    Arg log_sums = zeros_arg({batch, groups, shared, queries});
    Arg bias = random_arg({batch, groups, shared, queries, keys}, generator);
    log_sums.follows = bias.follows = false;
    const std::vector<Arg> args = {random_arg(query, generator),
                                   random_arg(key, generator),
                                   random_arg(value, generator),
                                   random_arg(output, generator),  // what is not written shows
                                   log_sums,
                                   random_arg(output, generator),
                                   random_arg(query, generator),
                                   random_arg(key, generator),
                                   random_arg(value, generator),
                                   bias,
                                   integers_arg({batch}, DType::i64, lengths),
                                   integers_arg({batch, keys}, DType::i32, segments),
                                   integers_arg({1}, DType::i64, {4})};
    for (const DType dtype : kFloats) {
      compare(*gpu, dtype, args, bound_of(dtype, 16), what,
              [&](Kernels& kernels, const std::vector<View>& v) {
                AttentionMasks masks;
                if (with.bias) masks.bias = v[9];
                if (with.lengths) masks.lengths = v[10];
                if (with.segments) masks.segments = v[11];
                if (with.drops) masks.keep_share = 0.75;
                masks.numbers.seed = 3;
                masks.numbers.step = v[12];
                kernels.attention(rule, masks, v[0], v[1], v[2], v[3], v[4]);
                kernels.attention_backward(rule, masks, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
              });
    }
  }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{5};
};

TEST_F(GpuAttention, InAllShapes) {
  check({2, 1, 1, 9, 16}, 9, 16, {.scale = 0.25}, {}, "all keys");
  check({1, 2, 1, 37, 20}, 37, 20, {.scale = 0.25, .causal = true}, {}, "causal");
  check({1, 1, 3, 5, 70}, 66, 33, {.scale = 0.125}, {}, "shared keys of more than a tile");
  check({1, 1, 1, 6, 8}, 40, 8, {.scale = 0.25, .causal = true, .first_query = 34}, {}, "behind a cache");
}

TEST_F(GpuAttention, WithMasks) {
  check({3, 1, 2, 40, 16}, 40, 16, {.scale = 0.25}, {.lengths = true}, "lengths");
  check({2, 1, 1, 40, 16}, 40, 16, {.scale = 0.25, .causal = true}, {.segments = true}, "documents");
  check({2, 2, 1, 7, 16}, 35, 16, {.scale = 0.25}, {.bias = true}, "a bias");
  check({2, 1, 2, 34, 16}, 34, 16, {.scale = 0.25, .causal = true}, {.drops = true}, "dropout");
}

// Widths of multiples of 16 bytes go to the matrix units, but for float64: several blocks of 64 rows and
// tiles of the others, the last of each in part.
TEST_F(GpuAttention, OnMatrixUnits) {
  check({1, 2, 2, 150, 24}, 150, 40, {.scale = 0.25, .causal = true}, {}, "causal, heads that share keys");
  check({2, 1, 1, 70, 64}, 100, 64, {.scale = 0.125}, {.lengths = true}, "lengths");
  check({1, 1, 2, 20, 128}, 90, 72, {.scale = 0.125, .causal = true, .first_query = 70}, {},
        "wide, behind a cache");
  check({2, 1, 1, 72, 16}, 72, 16, {.scale = 0.25, .causal = true}, {.segments = true, .drops = true},
        "documents and dropout");
  check({2, 1, 1, 0, 16}, 5, 16, {.scale = 0.25}, {}, "no queries: the gradients of keys are zeros");
  check({1, 1, 2, 66, 96}, 67, 8, {.scale = 0.125}, {.bias = true}, "wide, a bias");
  check({1, 2, 1, 65, 4}, 33, 68, {.scale = 0.5}, {.bias = true, .drops = true},
        "widths of 16 bytes of float32");
}

/// Forward and backward of `queries` queries that each see `keys` keys, all bits of float32 in use, and how
/// far what they write is from float64.
class Accuracy {
 public:
  Accuracy(std::int64_t queries, std::int64_t keys) {
    const Dims query = {1, 1, 1, queries, 64}, key = {1, 1, keys, 64};
    Generator generator{7};
    for (const Dims& shape : {query, key, key, query, Dims{1, 1, 1, queries}, query, query, key, key}) {
      std::vector<float> values(static_cast<std::size_t>(shape.product()));
      generator.normal(std::span<float>(values), 0, 1);
      Array array(shape, DType::f64);
      array.set({values.begin(), values.end()});
      args_.push_back({std::move(array)});
    }
    exact_ = run(*cpu_, DType::f64);
  }
  /// Of the output and the gradients of queries, keys and values: the root mean square of the errors by that
  /// of the numbers; the largest of the four.
  double error(Device& device) {
    const auto got = run(device, DType::f32);
    double most = 0;
    for (const std::size_t written : {3, 6, 7, 8}) {
      double square = 0, of_errors = 0;
      const auto expected = exact_[written].values(), values = got[written].values();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        square += expected[i] * expected[i];
        of_errors += (values[i] - expected[i]) * (values[i] - expected[i]);
      }
      const double error = std::sqrt(of_errors / square);
      most = error > most || std::isnan(error) ? error : most;
    }
    return most;
  }
  double error_on_cpu() { return error(*cpu_); }

 private:
  std::vector<Array> run(Device& device, DType dtype) const {
    std::vector<Array> arrays;
    for (const Arg& arg : args_) arrays.push_back(arg.array.as(dtype));
    run_on(device, args_, arrays, [](Kernels& kernels, const std::vector<View>& v) {
      const AttentionRule rule{.scale = 0.125};
      kernels.attention(rule, {}, v[0], v[1], v[2], v[3], v[4]);
      kernels.attention_backward(rule, {}, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
    });
    return arrays;
  }
  std::shared_ptr<Device> cpu_ = make_device("cpu");
  std::vector<Arg> args_;
  std::vector<Array> exact_;
};

// Its products are made of three products of TF32 each: the errors are those of float32, whose own kernels on
// the CPU are the measure. Sums over many keys, and over many queries.
TEST_F(GpuAttention, Float32OnMatrixUnitsIsFloat32) {
  for (const auto& [queries, keys] : {std::pair{32, 1024}, std::pair{512, 48}}) {
    Accuracy accuracy(queries, keys);
    const double error = accuracy.error(*gpu), on_cpu = accuracy.error_on_cpu();
    const std::string name = "queries_" + std::to_string(queries);
    RecordProperty(name + "_error", std::to_string(error * 1e9) + "e-9");
    RecordProperty(name + "_error_on_cpu", std::to_string(on_cpu * 1e9) + "e-9");
    EXPECT_LE(error, 3 * on_cpu) << queries << " queries, " << keys << " keys";
  }
}

// With DeviceOptions::tf32 factors are rounded to 11 bits, and float32's three products are one.
TEST_F(GpuAttention, RoundsToTf32WhereItMay) {
  const auto rounding = make_device("cuda", {.tf32 = true});
  Accuracy accuracy(40, 96);
  EXPECT_LE(accuracy.error(*rounding), 1.0 / 1024);
  EXPECT_GE(accuracy.error(*rounding), 20 * accuracy.error(*gpu));
}

}  // namespace
}  // namespace dtrain::test
