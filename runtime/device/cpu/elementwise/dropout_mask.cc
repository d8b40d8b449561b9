#include <algorithm>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/philox.h"

namespace dtrain::cpu {
namespace {

template <class T>
void mask_row(std::uint64_t key, std::uint64_t row, double keep, std::int64_t count, T* out) {
  const auto limit = static_cast<float>(keep);
  const T kept = cast<T>(1.0 / keep), dropped = cast<T>(0.0);
  for (std::int64_t begin = 0; begin < count; begin += 4) {
    const Philox random(key, static_cast<std::uint64_t>(begin / 4), row);
    const std::int64_t end = std::min<std::int64_t>(4, count - begin);
    for (std::int64_t i = 0; i < end; ++i) {
      out[begin + i] = unit_interval(random.words[i]) < limit ? kept : dropped;
    }
  }
}

}  // namespace

void CpuKernels::dropout_mask(const MaskNumbers& numbers, double keep, const View& out) {
  const std::int64_t rows = require_mask(numbers, keep, out);
  if (out.numel() == 0) return;
  const auto* const names = numbers.rows.as<const std::int64_t>();
  const std::uint64_t key = philox_key(numbers.seed, numbers.layer,
                                       static_cast<std::uint64_t>(*numbers.step.as<const std::int64_t>()));
  const std::int64_t count = out.numel() / rows;
  dispatch_floating("dropout_mask", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t name = names == nullptr ? row : names[row];
      mask_row<T>(key, static_cast<std::uint64_t>(name), keep, count, out.as<T>() + row * count);
    }
  });
}

}  // namespace dtrain::cpu
