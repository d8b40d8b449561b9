// Turns pairs of features by angles, a row of a head at a time.
#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {
namespace {

constexpr double kElementNs = 0.5;

/// Angles of a token: numbers that are `step` apart.
template <class C>
struct Angles {
  const C *cosines, *sines;
  std::int64_t cosine_step, sine_step;
  C sign;
};

/// Pairs lie `apart` from each other, their first features `step`. in and out may be one array.
template <class T>
void turn_row(std::int64_t pairs, std::int64_t step, std::int64_t apart, const Angles<Compute<T>>& at,
              const T* in, T* out) {
  DTRAIN_INDEPENDENT
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto cosine = at.cosines[i * at.cosine_step], sine = at.sign * at.sines[i * at.sine_step];
    const auto x = load(in[i * step]), y = load(in[i * step + apart]);
    out[i * step] = cast<T>(x * cosine - y * sine);
    out[i * step + apart] = cast<T>(y * cosine + x * sine);
  }
}

template <class T>
void turn(const View& in, const View& cosines, const View& sines, bool interleaved, bool back,
          const View& out) {
  using C = Compute<T>;
  const std::int64_t heads = in.shape[1], rows = in.shape[2], width = in.shape[3], pairs = cosines.shape[2];
  const auto turn_head = [&](std::int64_t head) {
    const std::int64_t b = head / heads, h = head % heads;
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* from = in.as<const T>() + b * in.strides[0] + h * in.strides[1] + r * in.strides[2];
      T* to = out.as<T>() + b * out.strides[0] + h * out.strides[1] + r * out.strides[2];
      const Angles<C> at{cosines.as<const C>() + b * cosines.strides[0] + r * cosines.strides[1],
                         sines.as<const C>() + b * sines.strides[0] + r * sines.strides[1],
                         cosines.strides[2], sines.strides[2], back ? C{-1} : C{1}};
      if (interleaved) {
        turn_row<T>(pairs, 2, 1, at, from, to);
      } else if (at.cosine_step == 1 && at.sine_step == 1) {  // what the compiler knows goes into vectors
        turn_row<T>(pairs, 1, pairs, {at.cosines, at.sines, 1, 1, at.sign}, from, to);
      } else {
        turn_row<T>(pairs, 1, pairs, at, from, to);
      }
      for (std::int64_t c = 2 * pairs; c < width; ++c) to[c] = from[c];
    }
  };
  for_ranges(in.shape[0] * heads, 1, kElementNs * static_cast<double>(rows * width),
             [&](std::int64_t begin, std::int64_t end) {
               widest([&] {
                 for (std::int64_t head = begin; head < end; ++head) turn_head(head);
               });
             });
}

}  // namespace

void CpuKernels::rotary(const View& in, const View& cosines, const View& sines, bool interleaved, bool back,
                        const View& out) {
  if (in.numel() == 0) return;
  dispatch_floating("rotary", in.dtype,
                    [&](auto tag) { turn<decltype(tag)>(in, cosines, sines, interleaved, back, out); });
}

}  // namespace dtrain::cpu
