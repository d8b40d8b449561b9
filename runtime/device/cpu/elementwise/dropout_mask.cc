#include <algorithm>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/philox.h"

namespace dtrain::cpu {
namespace {

/// The places of a row from `first` to before `end`; one draw is for four neighbours.
template <class T>
void mask_row(std::uint64_t key, std::uint64_t row, double keep, std::int64_t first, std::int64_t end,
              T* out) {
  const auto limit = static_cast<float>(keep);
  const T kept = cast<T>(1.0 / keep), dropped = cast<T>(0.0);
  for (std::int64_t place = first; place < end;) {
    const Philox random(key, static_cast<std::uint64_t>(place / 4), row);
    const std::int64_t next = std::min(end, place - place % 4 + 4);
    for (; place < next; ++place) *out++ = unit_interval(random.words[place % 4]) < limit ? kept : dropped;
  }
}

}  // namespace

void CpuKernels::dropout_mask(const MaskNumbers& numbers, double keep, const View& out) {
  const std::int64_t rows = mask_rows(numbers, out);
  if (out.numel() == 0) return;
  const auto* const names = numbers.rows.as<const std::int64_t>();
  const std::uint64_t key = philox_key(numbers.seed, numbers.layer,
                                       static_cast<std::uint64_t>(*numbers.step.as<const std::int64_t>()));
  const std::int64_t count = out.numel() / rows;
  dispatch_floating("dropout_mask", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t name = names == nullptr ? row : names[row];
      mask_row<T>(key, static_cast<std::uint64_t>(name), keep, numbers.first, numbers.first + count,
                  out.as<T>() + row * count);
    }
  });
}

}  // namespace dtrain::cpu
