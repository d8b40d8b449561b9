// Each element-wise function of kernels.def, and what it says of devices, against the CPU's in float64:
// extents that vectors divide or not, and none; the table of operations has no such cases.
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

constexpr UnaryOp kUnary[] = {
#define DTRAIN_UNARY(name, Functor) UnaryOp::name,
#include "runtime/device/kernels.def"
};
constexpr BinaryOp kBinary[] = {
#define DTRAIN_BINARY(name, Functor) BinaryOp::name,
#include "runtime/device/kernels.def"
};
constexpr ParametricOp kParametric[] = {
#define DTRAIN_PARAMETRIC(name, formula) ParametricOp::name,
#include "runtime/device/kernels.def"
};

class GpuFormulas : public testing::Test {
 protected:
  void check(const std::vector<Arg>& args, const std::string& what, int op, const Call& call) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      compare(*gpu, dtype, args, bound_of(dtype, 4), what + " " + std::to_string(op), call);
    }
  }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{6};
};

TEST_F(GpuFormulas, AreThoseOfTheCpu) {
  for (const Dims& shape : {Dims{7}, Dims{1024}, Dims{1030}, Dims{3, 5, 2, 9}, Dims{0}}) {
    const Arg x = random_arg(shape, generator), y = random_arg(shape, generator), out = zeros_arg(shape);
    for (const UnaryOp op : kUnary) {
      check({x, out}, "unary", static_cast<int>(op),
            [op](Kernels& kernels, const std::vector<View>& v) { kernels.unary(op, v[0], v[1]); });
    }
    for (const BinaryOp op : kBinary) {
      check({x, y, out}, "binary", static_cast<int>(op),
            [op](Kernels& kernels, const std::vector<View>& v) { kernels.binary(op, v[0], v[1], v[2]); });
    }
    for (const ParametricOp op : kParametric) {  // numbers that no element equals
      check({x, out}, "parametric", static_cast<int>(op), [op](Kernels& kernels, const std::vector<View>& v) {
        kernels.parametric(op, v[0], 0.3, 0.7, v[1]);
      });
    }
  }
}

TEST_F(GpuFormulas, StoredDtypesAreCopiedAndChosen) {
  const std::vector<double> values = {0, 1, 2, 100, 0, 7};
  for (const DType dtype : {DType::f16, DType::i16, DType::i8, DType::u8, DType::i32, DType::boolean}) {
    const Arg numbers = integers_arg({6}, DType::i64, values);
    Arg stored = integers_arg({6}, dtype, std::vector<double>(6)), chosen = stored;
    stored.stays = chosen.stays = true;
    compare(*gpu, DType::f32, {numbers, stored, chosen, zeros_arg({6})}, 0, std::string(name_of(dtype)),
            [](Kernels& kernels, const std::vector<View>& v) {
              kernels.copy(v[0], v[1]);
              kernels.where(v[1], v[1], v[2], v[2]);
              kernels.copy(v[2], v[3]);
            });
  }
}

}  // namespace
}  // namespace dtrain::test
