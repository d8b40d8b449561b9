// Division by a number that all threads have in common. A GPU has no divider: 64 bits cost it some hundred
// instructions, a multiplication by the reciprocal ten.
#pragma once

#include <bit>
#include <cstdint>

#if defined(DTRAIN_KERNELS)
#define DTRAIN_KERNEL_INLINE __host__ __device__ inline
#else
#define DTRAIN_KERNEL_INLINE inline
#endif

namespace dtrain::cuda {

/// Exact for every dividend of 0 to 2⁶³ - 1 (Granlund and Montgomery, "Division by invariant integers using
/// multiplication", 1994): the reciprocal is rounded up to 64 digits, one more than a dividend has.
class Divisor {
 public:
  /// By 1.
  Divisor() = default;
  /// `by` below 2⁶²; what is less than 1 divides by 1, for arrays that are not there.
  explicit Divisor(std::int64_t by) {
    if (by <= 1) return;
    shift_ = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(by - 1)));
    reciprocal_ = static_cast<std::uint64_t>((Wide{1} << (63 + shift_)) / static_cast<std::uint64_t>(by)) + 1;
  }

  /// dividend / by, rounded down.
  DTRAIN_KERNEL_INLINE std::int64_t operator()(std::int64_t dividend) const {
    const auto twice = static_cast<std::uint64_t>(dividend) << 1;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>((Wide{twice} * reciprocal_) >> 64) >> shift_);
  }

 private:
  using Wide = unsigned __int128;

  std::uint64_t reciprocal_ = (std::uint64_t{1} << 63) + 1;
  std::uint32_t shift_ = 0;
};

}  // namespace dtrain::cuda
