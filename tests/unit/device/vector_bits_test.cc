// Every kernel that runs with the widest vectors a processor has gives the same bits with all of them: this
// program runs itself with DTRAIN_CPU_VECTORS set to each and compares the hashes of what kernels wrote.
// Counts and strides that fill no vector are among the arguments.
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;
using test::Layout;

constexpr std::array kDtypes = {DType::f32, DType::bf16};

/// FNV-1a of an array's elements, in memory order.
std::uint64_t hash_of(const View& view) {
  std::uint64_t hash = 14695981039346656037U;
  const auto* const bytes = view.as<const unsigned char>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.numel()) * size_of(view.dtype); ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return hash;
}

/// The same with every NaN made one: their signs are the processor's, and differ between x86-64 and ARM.
std::uint64_t hash_of_values(const View& view) {
  Array values({view.numel()}, view.dtype);
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    if (view.dtype == DType::f32) {
      const float value = view.as<const float>()[i];
      values.view().as<float>()[i] = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
    } else {
      const std::uint16_t bits = view.as<const std::uint16_t>()[i];
      const int largest = view.dtype == DType::bf16 ? 0x7f80 : 0x7c00;  // infinity's; anything above is NaN
      values.view().as<std::uint16_t>()[i] = (bits & 0x7fff) > largest ? std::uint16_t{0x7fff} : bits;
    }
  }
  return hash_of(values);
}

/// Prints lines "bits NAME HASH" and "values NAME HASH" for the arrays that it is given; the latter are the
/// same on any processor.
class Printer {
 public:
  Kernels& kernels() { return device_->kernels(); }
  Array numbers(const Dims& shape, DType dtype, Layout layout = Layout::contiguous) {
    return Array::uneven(shape, generator_, dtype, layout);
  }
  void print(const std::string& name, const View& out) {
    std::printf("bits %s %016lx\n", name.c_str(), static_cast<unsigned long>(hash_of(out)));
    std::printf("values %s %016lx\n", name.c_str(), static_cast<unsigned long>(hash_of_values(out)));
  }

 private:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{61};
};

constexpr int kUnaries = 0
#define DTRAIN_UNARY(name, Functor) +1
#include "runtime/device/kernels.def"
    ;
constexpr int kBinaries = 0
#define DTRAIN_BINARY(name, Functor) +1
#include "runtime/device/kernels.def"
    ;
constexpr int kParametrics = 0
#define DTRAIN_PARAMETRIC(name, formula) +1
#include "runtime/device/kernels.def"
    ;

void print_elementwise(Printer& printer, DType dtype) {
  const std::string kind(dtype == DType::f32 ? "f32" : "bf16");
  const Array a = printer.numbers({3, 67, 5}, dtype), b = printer.numbers({3, 67, 5}, dtype);
  Array out({3, 67, 5}, dtype), sum = a;
  for (int op = 0; op < kUnaries; ++op) {
    printer.kernels().unary(static_cast<UnaryOp>(op), a, out);
    printer.print(kind + " unary " + std::to_string(op), out);
  }
  View column = b.view();
  column.strides = Dims{0, 0, 0};
  for (int op = 0; op < kBinaries; ++op) {
    printer.kernels().binary(static_cast<BinaryOp>(op), a, b, out);
    printer.print(kind + " binary " + std::to_string(op), out);
    printer.kernels().binary(static_cast<BinaryOp>(op), a, column, out);
    printer.print(kind + " binary with a number " + std::to_string(op), out);
  }
  for (int op = 0; op < kParametrics; ++op) {
    printer.kernels().parametric(static_cast<ParametricOp>(op), a, 0.3, 1.7, out);
    printer.print(kind + " parametric " + std::to_string(op), out);
  }
  printer.kernels().affine(a, 0.7, 0.3, out);
  printer.print(kind + " affine", out);
  printer.kernels().accumulate(b, 0.7, sum);
  printer.print(kind + " accumulate", sum);
  for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
    Array converted({3, 67, 5}, to), back({3, 67, 5}, DType::f32);
    printer.kernels().copy(a, converted);
    printer.kernels().copy(converted, back);
    printer.print(kind + " copy", back);
  }
}

/// Every float16, and floats by their bits: all exponents and NaN of both kinds among them.
void print_float16(Printer& printer) {
  constexpr std::int64_t kCount = 0x10000 + 7;
  Array halves({kCount}, DType::f16), floats({kCount});
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto bits = static_cast<std::uint32_t>(i);
    halves.view().as<Float16>()[i].bits = static_cast<std::uint16_t>(bits);
    floats.view().as<float>()[i] = std::bit_cast<float>(bits * 65521U);
  }
  Array from_halves({kCount}), from_floats({kCount}, DType::f16);
  printer.kernels().copy(halves, from_halves);
  printer.kernels().copy(floats, from_floats);
  printer.print("from float16", from_halves);
  printer.print("to float16", from_floats);
}

/// Rows whose extremes hang on the order of comparisons: zeros of both signs and several NaN.
void print_extremes(Printer& printer) {
  const Array rows = printer.numbers({97, 333}, DType::f32), out({97, 1});
  auto* const value = rows.view().as<float>();
  for (std::uint32_t i = 0; i < 97 * 333; ++i) {
    const std::uint32_t row = i / 333, mixed = i * 2654435761U;
    const float sign = row % 2 == 0 ? 1.0F : -1.0F;
    if (row % 3 == 0) value[i] = std::copysign(0.0F, value[i]);
    if (row % 3 == 1) value[i] = mixed % 5 == 0 ? 0.0F * value[i] : sign * std::abs(value[i]);
    if (row % 6 == 2 && mixed % 101 == 0) value[i] = std::bit_cast<float>(0x7fc00000U | mixed);
  }
  for (const Reduction op : {Reduction::max, Reduction::min}) {
    printer.kernels().reduce(op, rows, out);
    printer.print("extremes", out);
  }
}

void print_reductions(Printer& printer, DType dtype) {
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    const Dims shape{3, 19, 7, 37};
    const Array in = printer.numbers(shape, dtype, layout);
    for (int set = 0; set < 16; ++set) {
      Dims kept = shape;
      for (int d = 0; d < 4; ++d) kept[d] = (set >> d & 1) != 0 ? 1 : shape[d];
      Array out(kept, dtype);
      for (const Reduction op : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min}) {
        printer.kernels().reduce(op, in, out);
        printer.print("reduce " + std::to_string(set), out);
      }
    }
  }
  Array long_row = printer.numbers({200003}, dtype), total({1}, DType::f32);
  Array wide = long_row.as(DType::f32);
  printer.kernels().reduce(Reduction::sum, wide, total);
  printer.print("sum of a long row", total);
  printer.kernels().unary(UnaryOp::tanh, long_row, long_row);
  printer.print("tanh of a long row", long_row);
  const Array matrix = printer.numbers({301, 777}, dtype);
  Array rows({301, 1}, dtype), columns({1, 777}, dtype);
  for (const Reduction op : {Reduction::sum, Reduction::max}) {
    printer.kernels().reduce(op, matrix, rows);
    printer.kernels().reduce(op, matrix, columns);
    printer.print("rows", rows);
    printer.print("columns", columns);
  }
}

void print_rows(Printer& printer, DType dtype) {
  for (const Dims& shape : {Dims{5, 1}, Dims{5, 15}, Dims{5, 64}, Dims{5, 333}, Dims{703, 333}}) {
    const std::int64_t rows = shape[0], columns = shape[1];
    const Array in = printer.numbers(shape, dtype), grad = printer.numbers(shape, dtype);
    const Array weight = printer.numbers({columns}, dtype), bias = printer.numbers({columns}, dtype);
    const Array target({rows}, DType::i64);
    Array out(shape, dtype), column({columns}, dtype), other({columns}, dtype), losses({rows}, dtype);
    Array mean({rows}), inv_std({rows});
    Kernels& k = printer.kernels();
    k.log_softmax(in, out);
    printer.print("log_softmax", out);
    k.cross_entropy(in, target, std::nullopt, out, losses);
    printer.print("cross_entropy", losses);
    Array grad_logits(shape, dtype);
    k.cross_entropy_backward(out, target, std::nullopt, losses, grad_logits);
    printer.print("cross_entropy_backward", grad_logits);
    k.row_norm({}, in, weight, bias, mean, inv_std, out);
    printer.print("row_norm", out);
    printer.print("row_norm mean", mean);
    printer.print("row_norm inv_std", inv_std);
    k.row_norm_backward(in, weight, mean, inv_std, grad, out, column, other);
    printer.print("row_norm_backward", out);
    printer.print("row_norm_backward weight", column);
    printer.print("row_norm_backward bias", other);
    k.row_norm({1e-6, false}, in, weight, {}, {}, inv_std, out);
    printer.print("rms norm", out);
  }
}

void print_updates(Printer& printer, DType dtype) {
  Array param = printer.numbers({1003}, dtype), momentum = printer.numbers({1003}, dtype);
  Array variance({1003}, dtype);
  const Array grad = printer.numbers({1003}, dtype);
  const OptimizerSlot slot{param, grad, momentum, variance};
  for (int step = 1; step < 4; ++step) {
    printer.kernels().adamw(std::span(&slot, 1), {.step = step});
    printer.kernels().sgd(std::span(&slot, 1), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  }
  printer.print("param", param);
  printer.print("momentum", momentum);
}

/// Blocks of small networks have fused products and sums, where the processor has them.
void print_blocks(Printer& printer) {
  for (const auto& [channels, kernel, outputs] :
       {std::array{1, 5, 20}, std::array{20, 5, 50}, std::array{3, 3, 7}}) {
    const std::int64_t extent = 2 * 4 + kernel - 1;
    const Array x = printer.numbers({32, channels, extent, extent}, DType::f32, Layout::channels_last);
    const Array w = printer.numbers({outputs, channels, kernel, kernel}, DType::f32);
    const Array bias = printer.numbers({outputs}, DType::f32);
    const Array dy = printer.numbers({32, outputs, 4, 4}, DType::f32, Layout::channels_last);
    for (const PoolKind kind : {PoolKind::avg, PoolKind::max}) {
      Array y = dy, mask({32, outputs, 4, 4}, DType::u8, Layout::channels_last);
      printer.kernels().conv2d_relu_pool2d({}, {.kind = kind}, x, w, bias, y, mask);
      printer.print("block", y);
      Array dx = x, dw = w, db = bias;
      printer.kernels().conv2d_relu_pool2d_backward({}, {.kind = kind}, x, w, dy, mask, dx, dw, db);
      printer.print("block's input", dx);
      printer.print("block's weight", dw);
      printer.print("block's bias", db);
    }
  }
}

/// These are run by the tests below, in processes of their own.
TEST(VectorBits, DISABLED_PrintBlocks) {
  Printer printer;
  print_blocks(printer);
}

TEST(VectorBits, DISABLED_Print) {
  Printer edges;
  print_float16(edges);
  print_extremes(edges);
  for (const DType dtype : kDtypes) {
    Printer printer;
    print_elementwise(printer, dtype);
    print_reductions(printer, dtype);
    print_rows(printer, dtype);
    print_updates(printer, dtype);
  }
}

std::vector<std::string> bits_with(const std::string& vectors, const std::string& threads = "1",
                                   const std::string& test = "Print") {
  std::array<char, 4096> self{};
  const auto length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (length <= 0) return {};
  // A program of another processor cannot start itself: tests/arm64.sh says who can.
  const char* const emulator = std::getenv("DTRAIN_TEST_EMULATOR");
  const std::string command = "DTRAIN_CPU_VECTORS=" + vectors + " OMP_NUM_THREADS=" + threads + " " +
                              (emulator == nullptr ? "" : emulator) + " '" + self.data() +
                              "' --gtest_also_run_disabled_tests --gtest_filter=VectorBits.DISABLED_" + test;
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return {};
  std::vector<std::string> lines;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), output) != nullptr) {
    if (std::string(line.data()).starts_with("bits ")) lines.emplace_back(line.data());
  }
  EXPECT_EQ(pclose(output), 0) << command;
  return lines;
}

TEST(VectorBits, AreTheSameWithVectorsOfAnyLength) {
  const auto widest = bits_with("avx512");
  EXPECT_GT(widest.size(), 400U);
  EXPECT_EQ(bits_with("avx2"), widest);
  EXPECT_EQ(bits_with("baseline"), widest);
}

TEST(VectorBits, OfSmallNetworksAreTheSameWhereProductsAndSumsAreFused) {
  const auto widest = bits_with("avx512", "1", "PrintBlocks");
  EXPECT_EQ(widest.size(), 24U);
  EXPECT_EQ(bits_with("avx2", "1", "PrintBlocks"), widest);
}

TEST(VectorBits, AreTheSameWithAnyNumberOfThreads) {
  const auto alone = bits_with("avx512");
  for (const char* const threads : {"2", "3", "8"}) EXPECT_EQ(bits_with("avx512", threads), alone) << threads;
}

TEST(VectorBits, AnUnknownLimitIsRefused) {
  EXPECT_NE(std::system(
                ("DTRAIN_CPU_VECTORS=avx1024 '/proc/" + std::to_string(getpid()) +
                 "/exe' --gtest_also_run_disabled_tests --gtest_filter=VectorBits.DISABLED_Print > /dev/null")
                    .c_str()),
            0);
}

}  // namespace
}  // namespace dtrain
