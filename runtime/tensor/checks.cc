#include "runtime/tensor/checks.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "runtime/base/error.h"

namespace dtrain {

void check_extents(std::string_view what, const Dims& shape, std::size_t element_bytes) {
  auto bytes = static_cast<std::int64_t>(element_bytes);
  bool fits = true;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      throw UsageError(std::string(what) + " " + shape.to_string() + ": extents must not be negative");
    }
    // An extent of 0 empties the tensor, not its strides.
    fits = fits && !__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes);
  }
  if (fits) return;
  throw UsageError(std::string(what) + " " + shape.to_string() + ": expected fewer than 2^63 bytes in all");
}

void check_same_device(std::string_view what, const Tensor& a, const Tensor& b) {
  if (!b.defined() || a.shared_device() == b.shared_device()) return;
  throw UsageError(std::string(what) + ": expected operands on one device, got " + a.device().name() +
                   " and " + b.device().name() +
                   "; move one with to() (each make_device() makes a device of its own)");
}

void refuse_host_memory(std::size_t bytes) {
  throw DeviceError("host: cannot allocate " + std::to_string(bytes) + " bytes", ENOMEM);
}

void check_no_overlap(std::string_view name, const Tensor& target) {
  for (int i = 0; i < target.rank(); ++i) {
    if (target.numel() > 0 && target.shape()[i] > 1 && target.strides()[i] == 0) {
      throw UsageError(std::string(name) + ": the target " + target.describe() +
                       " is a broadcast view; make a copy with contiguous() first");
    }
  }
}

}  // namespace dtrain
