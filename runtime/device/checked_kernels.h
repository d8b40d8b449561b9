// A device's table of kernels with the checks of their arguments in front, which are the same for every
// device: shapes, dtypes and layouts that kernels.def asks for. They throw UsageError before any memory is
// touched. What depends on the numbers in an array (an index, a label) or on a device's own limits is for its
// kernel to check.
#pragma once

#include <atomic>
#include <string_view>
#include <utility>

#include "runtime/device/kernel_checks.h"
#include "runtime/device/kernels.h"

namespace dtrain {

/// The checks of each kernel's arguments; one that is missing does not link.
namespace checks {
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) void name parameters;
#include "runtime/device/kernels.def"
}  // namespace checks

/// Notes that a thread is in a table of kernels, whose scratch memory and compiled primitives are for one
/// thread at a time: two at once would write over each other's. Throws UsageError for the second.
class InUse {
 public:
  InUse(std::atomic<const void*>& user, std::string_view kernel)
      : user_(user), before_(user.load(std::memory_order_relaxed)) {
    static thread_local const char thread = 0;  // its address stands for the thread
    if (before_ != nullptr && before_ != &thread) {
      refuse(kernel,
             "expected one thread at a time on a device, got a call while another thread computes on it; "
             "give each thread a device of its own, as make_device(\"cuda:1\")");
    }
    user.store(&thread, std::memory_order_relaxed);
  }
  ~InUse() { user_.store(before_, std::memory_order_relaxed); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<const void*>& user_;
  const void* const before_;
};

/// Owns the table behind. Its kernels call each other without checks.
template <class Inner>
class CheckedKernels final : public Kernels {
 public:
  template <class... T>
  explicit CheckedKernels(T&&... of_inner) : inner_(std::forward<T>(of_inner)...) {}

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  void name parameters override {                               \
    checks::name arguments;                                     \
    const InUse in_use(user_, #name);                           \
    inner_.name arguments;                                      \
  }
#include "runtime/device/kernels.def"

  const Inner& inner() const noexcept { return inner_; }

 private:
  Inner inner_;
  std::atomic<const void*> user_ = nullptr;
};

}  // namespace dtrain
