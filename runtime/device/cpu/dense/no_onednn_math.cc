// Stands in for oneDNN in builds without it: everything runs in the loops of naive.h.
#include "runtime/device/cpu/dense/dense_math.h"

namespace dtrain::cpu {
namespace {

class NoMath final : public DenseMath {
 public:
  bool matmul(const View&, const View&, const View&, bool, const View&) override { return false; }
  bool conv2d(const Conv2dGeometry&, const View&, const View&, const View&, const View&) override {
    return false;
  }
  bool conv2d_backward_input(const Conv2dGeometry&, const View&, const View&, const View&) override {
    return false;
  }
  bool conv2d_backward_weight(const Conv2dGeometry&, const View&, const View&, const View&,
                              const View&) override {
    return false;
  }
};

}  // namespace

std::unique_ptr<DenseMath> make_dense_math() { return std::make_unique<NoMath>(); }

std::string dense_math_name() { return "plain loops; build with libdnnl-dev for speed"; }

}  // namespace dtrain::cpu
