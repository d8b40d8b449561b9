// unary, parametric, binary and where: the functors of runtime/device/functors.h run over strided views.
#include "runtime/device/functors.h"

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/spread_loop.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {
namespace {

constexpr double kElementNs = 0.2;

void refuse_zero_divisor(const View& divisor) {
  walk<const std::int64_t>(divisor, [](std::int64_t n, const std::int64_t* p, std::int64_t step) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (p[i * step] == 0) refuse("binary div", "int64 division by zero");
    }
  });
}

/// Loops over 16 and 32 bits, whose functions are vectorized, with the widest vectors; others are as fast
/// without.
template <class T, class Loop>
void run(const Loop& loop) {
  if constexpr (std::is_same_v<Compute<T>, float>) {
    widest(loop);
  } else {
    loop();
  }
}

template <class T, class Op>
void unary_run(Op op, std::int64_t n, T* to, std::int64_t ts, const T* from, std::int64_t fs) {
  if (ts == 1 && fs == 1) {
    DTRAIN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) to[i] = cast<T>(op(load(from[i])));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * ts] = cast<T>(op(load(from[i * fs])));
  }
}

/// A function of angles, whatever their size.
template <class Op>
auto far_or_near(Op op) {
  return [op](float x) { return std::abs(x) <= math::kLargestAngle ? op(x) : Op::far(x); };
}

/// Whether all `n` angles are small enough for the functions that vectors have.
template <class T>
bool all_near(std::int64_t n, const T* from, std::int64_t step) {
  std::int64_t near = 0;
  for (std::int64_t i = 0; i < n; ++i) near += std::abs(load(from[i * step])) <= math::kLargestAngle ? 1 : 0;
  return near == n;
}

template <class T, class Op>
void unary_loop(Op op, const View& in, const View& out) {
  constexpr bool kFar = requires { Op::far(0.0F); }
  &&std::is_same_v<Compute<T>, float>;
  spread_walk<T, const T>(kElementNs, out, in,
                          [&](std::int64_t n, T* to, std::int64_t ts, const T* from, std::int64_t fs) {
                            if constexpr (kFar) {
                              if (!all_near(n, from, fs))
                                return unary_run(far_or_near(op), n, to, ts, from, fs);
                            }
                            run<T>([&] { unary_run(op, n, to, ts, from, fs); });
                          });
}

/// Two arrays, or one and a number that is broadcast.
template <class T, class Op>
void binary_run(Op op, std::int64_t n, T* to, std::int64_t ts, const T* a, std::int64_t as, const T* b,
                std::int64_t bs) {
  if (ts == 1 && as == 1 && bs == 1) {
    DTRAIN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) to[i] = cast<T>(op(load(a[i]), load(b[i])));
  } else if (ts == 1 && as == 1 && bs == 0) {
    const auto second = load(*b);
    DTRAIN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) to[i] = cast<T>(op(load(a[i]), second));
  } else if (ts == 1 && as == 0 && bs == 1) {
    const auto first = load(*a);
    DTRAIN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) to[i] = cast<T>(op(first, load(b[i])));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * ts] = cast<T>(op(load(a[i * as]), load(b[i * bs])));
  }
}

template <class T, class Op>
void binary_loop(Op op, const View& a, const View& b, const View& out) {
  spread_walk<T, const T, const T>(
      kElementNs, out, a, b,
      [&](std::int64_t n, T* to, std::int64_t ts, const T* pa, std::int64_t as, const T* pb,
          std::int64_t bs) { run<T>([&] { binary_run(op, n, to, ts, pa, as, pb, bs); }); });
}

}  // namespace

void CpuKernels::unary(UnaryOp op, const View& in, const View& out) {
  functor::visit(op, [&](auto functor) {
    if (in.dtype == DType::i64) {
      if constexpr (decltype(functor)::kIntegers) return unary_loop<std::int64_t>(functor, in, out);
    }
    dispatch_floating("unary", in.dtype, [&](auto tag) { unary_loop<decltype(tag)>(functor, in, out); });
  });
}

void CpuKernels::parametric(ParametricOp op, const View& in, double a, double b, const View& out) {
  functor::visit(op, [&](auto functor) {
    dispatch_floating("parametric", in.dtype, [&](auto tag) {
      using C = Compute<decltype(tag)>;
      const C first = static_cast<C>(a), second = static_cast<C>(b);
      unary_loop<decltype(tag)>([&](C x) { return functor(x, first, second); }, in, out);
    });
  });
}

void CpuKernels::binary(BinaryOp op, const View& a, const View& b, const View& out) {
  if (op == BinaryOp::div && out.dtype == DType::i64) refuse_zero_divisor(b);
  functor::visit(op, [&](auto functor) {
    const auto run = [&](auto tag) { binary_loop<decltype(tag)>(functor, a, b, out); };
    if constexpr (functor::takes_integers<decltype(functor)>())
      return dispatch_arithmetic("binary", out.dtype, run);
    dispatch_floating("binary", out.dtype, run);
  });
}

void CpuKernels::where(const View& condition, const View& a, const View& b, const View& out) {
  const StridedLoop<4> loop(out.shape, {out.strides, condition.strides, a.strides, b.strides});
  dispatch_bits(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    dispatch_any(condition.dtype, [&](auto condition_tag) {
      using C = decltype(condition_tag);
      spread(loop, kElementNs, [&](const auto& at, std::int64_t n, const auto& step) {
        T* to = out.as<T>() + at[0];
        const C* chosen = condition.as<const C>() + at[1];
        const T* pa = a.as<const T>() + at[2];
        const T* pb = b.as<const T>() + at[3];
        for (std::int64_t i = 0; i < n; ++i) {
          to[i * step[0]] = load(chosen[i * step[1]]) != 0 ? pa[i * step[2]] : pb[i * step[3]];
        }
      });
    });
  });
}

}  // namespace dtrain::cpu
