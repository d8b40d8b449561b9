// unary, parametric, binary and where: the functors of runtime/device/functors.h run over strided views.
#include "runtime/device/functors.h"

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/strided_loop.h"

namespace dtrain::cpu {
namespace {

void refuse_zero_divisor(const View& divisor) {
  walk<const std::int64_t>(divisor, [](std::int64_t n, const std::int64_t* p, std::int64_t step) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (p[i * step] == 0) refuse("binary div", "int64 division by zero");
    }
  });
}

template <class T, class Op>
void unary_loop(Op op, const View& in, const View& out) {
  walk<T, const T>(out, in, [&](std::int64_t n, T* to, std::int64_t ts, const T* from, std::int64_t fs) {
    for (std::int64_t i = 0; i < n; ++i) to[i * ts] = cast<T>(op(load(from[i * fs])));
  });
}

template <class T, class Op>
void binary_loop(Op op, const View& a, const View& b, const View& out) {
  walk<T, const T, const T>(out, a, b,
                            [&](std::int64_t n, T* to, std::int64_t ts, const T* pa, std::int64_t as,
                                const T* pb, std::int64_t bs) {
                              for (std::int64_t i = 0; i < n; ++i) {
                                to[i * ts] = cast<T>(op(load(pa[i * as]), load(pb[i * bs])));
                              }
                            });
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
    dispatch_arithmetic("binary", out.dtype,
                        [&](auto tag) { binary_loop<decltype(tag)>(functor, a, b, out); });
  });
}

void CpuKernels::where(const View& condition, const View& a, const View& b, const View& out) {
  const StridedLoop<4> loop(out.shape, {out.strides, condition.strides, a.strides, b.strides});
  dispatch_bits(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    dispatch_any(condition.dtype, [&](auto condition_tag) {
      using C = decltype(condition_tag);
      loop.run([&](const auto& at, std::int64_t n, const auto& step) {
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
