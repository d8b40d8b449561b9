// A device's table of kernels with the checks of their arguments in front, which are the same for every
// device: shapes, dtypes and layouts that kernels.def asks for. They throw UsageError before any memory is
// touched. What depends on the numbers in an array (an index, a label) or on a device's own limits is for its
// kernel to check.
#pragma once

#include <utility>

#include "runtime/device/kernels.h"

namespace dtrain {

/// The checks of each kernel's arguments; one that is missing does not link.
namespace checks {
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) void name parameters;
#include "runtime/device/kernels.def"
}  // namespace checks

/// Owns the table behind. Its kernels call each other without checks.
template <class Inner>
class CheckedKernels final : public Kernels {
 public:
  template <class... T>
  explicit CheckedKernels(T&&... of_inner) : inner_(std::forward<T>(of_inner)...) {}

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  void name parameters override {                               \
    checks::name arguments;                                     \
    inner_.name arguments;                                      \
  }
#include "runtime/device/kernels.def"

  const Inner& inner() const noexcept { return inner_; }

 private:
  Inner inner_;
};

}  // namespace dtrain
