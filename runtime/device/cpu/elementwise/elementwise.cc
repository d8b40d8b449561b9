// fill, copy, affine, accumulate: element-wise kernels that know nothing of operators.
#include <cstring>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/float16.h"
#include "runtime/device/cpu/loops/spread_loop.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {
namespace {

/// What an element takes: memory is what these kernels wait for.
constexpr double kElementNs = 0.2;

/// Pairs of types that the processor has an instruction for.
template <class From, class To>
inline constexpr bool kHasInstruction = (std::is_same_v<From, float> && std::is_same_v<To, Float16>) ||
                                        (std::is_same_v<From, Float16> && std::is_same_v<To, float>);

template <class From, class To>
void copy_run(std::int64_t n, To* to, std::int64_t to_step, const From* from, std::int64_t from_step) {
  if (to_step == 1 && from_step == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memmove(to, from, static_cast<std::size_t>(n) * sizeof(To));
    } else if constexpr (kHasInstruction<From, To>) {
      convert(n, from, to);
    } else {
      widest([&] {
        for (std::int64_t i = 0; i < n; ++i) to[i] = cast<To>(from[i]);
      });
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = cast<To>(from[i * from_step]);
}

/// f32 and bf16 scale in float as PyTorch does; everything else in double, so that u8 pixels times 1/255 are
/// the correctly rounded quotients.
template <class From, class To>
using AffineType =
    std::conditional_t<std::is_same_v<Compute<From>, float> && std::is_same_v<Compute<To>, float>, float,
                       double>;

}  // namespace

void CpuKernels::fill(const View& out, double value) {
  dispatch_any(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T element = cast<T>(value);
    spread_walk<T>(kElementNs, out, [&](std::int64_t n, T* to, std::int64_t step) {
      for (std::int64_t i = 0; i < n; ++i) to[i * step] = element;
    });
  });
}

void CpuKernels::copy(const View& in, const View& out) {
  dispatch_any(in.dtype, [&](auto from_tag) {
    dispatch_any(out.dtype, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      spread_walk<To, const From>(kElementNs, out, in,
                                  [](std::int64_t n, To* to, std::int64_t ts, const From* from,
                                     std::int64_t fs) { copy_run<From, To>(n, to, ts, from, fs); });
    });
  });
}

void CpuKernels::affine(const View& in, double scale, double shift, const View& out) {
  dispatch_scalable("affine", in.dtype, [&](auto from_tag) {
    dispatch_scalable("affine", out.dtype, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      using A = AffineType<From, To>;
      const A a = static_cast<A>(scale), b = static_cast<A>(shift);
      spread_walk<To, const From>(
          kElementNs, out, in,
          [&](std::int64_t n, To* to, std::int64_t ts, const From* from, std::int64_t fs) {
            widest([&] {
              if (ts == 1 && fs == 1) {
                DTRAIN_INDEPENDENT
                for (std::int64_t i = 0; i < n; ++i) to[i] = cast<To>(a * cast<A>(from[i]) + b);
                return;
              }
              for (std::int64_t i = 0; i < n; ++i) to[i * ts] = cast<To>(a * cast<A>(from[i * fs]) + b);
            });
          });
    });
  });
}

void CpuKernels::accumulate(const View& in, double scale, const View& out) {
  dispatch_floating("accumulate", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto factor = static_cast<Compute<T>>(scale);
    spread_walk<T, const T>(kElementNs, out, in,
                            [&](std::int64_t n, T* to, std::int64_t ts, const T* from, std::int64_t fs) {
                              widest([&] {
                                if (ts == 1 && fs == 1) {
                                  DTRAIN_INDEPENDENT
                                  for (std::int64_t i = 0; i < n; ++i)
                                    to[i] = cast<T>(load(to[i]) + load(from[i]) * factor);
                                  return;
                                }
                                for (std::int64_t i = 0; i < n; ++i) {
                                  to[i * ts] = cast<T>(load(to[i * ts]) + load(from[i * fs]) * factor);
                                }
                              });
                            });
  });
}

}  // namespace dtrain::cpu
