// Element-wise kernels: the functors of runtime/device/functors.h, dense in packs of 16 bytes, or strided.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/loads.cuh"
#include "runtime/device/functors.h"

namespace dtrain::cuda {
namespace {

/// Elements a thread takes at a time: 16 bytes of the largest type.
template <class... T>
constexpr int kPack = std::min({kWide<T>...});

/// out[i] = op(in[i] …).
template <class Out, class Op, class... In>
__global__ void dense_kernel(std::int64_t count, Op op, Out* out, const In*... in) {
  constexpr int V = kPack<Out, In...>;
  const std::int64_t packs = count / V;
  for (std::int64_t i = first_item(); i < packs; i += item_step()) {
    const auto apply = [&](auto... pack) {  // copies: of a reference each element would be loaded alone
      Pack<Out, V> result;
#pragma unroll
      for (int j = 0; j < V; ++j) result.at[j] = op(pack.at[j]...);
      reinterpret_cast<Pack<Out, V>*>(out)[i] = result;
    };
    apply(reinterpret_cast<const Pack<In, V>*>(in)[i]...);
  }
#pragma unroll 1  // a few elements at most
  for (std::int64_t i = packs * V + first_item(); i < count; i += item_step()) out[i] = op(in[i]...);
}

template <int N, class Op, std::size_t... I, class... In>
__device__ __forceinline__ auto call_at(const Op& op, const std::int64_t (&at)[N], std::index_sequence<I...>,
                                        const In*... in) {
  return op(in[at[I + 1]]...);
}

template <int N, class Op, class Out, class... In>
__global__ void strided_kernel(Layout<N> layout, Op op, Out* out, const In*... in) {
  for (std::int64_t i = first_item(); i < layout.count; i += item_step()) {
    std::int64_t at[N];
    layout.locate(i, at);
    out[at[0]] = call_at(op, at, std::index_sequence_for<In...>{}, in...);
  }
}

/// Types worth a packed kernel of their own; the rest always takes the strided one.
template <class T>
constexpr bool kHot = std::is_same_v<T, float> || kIsHalf<T>;
template <class Out, class... In>
constexpr bool kWorthPacking = kHot<Out> && ((kHot<In> || std::is_same_v<In, std::uint8_t>)&&...);

template <class Out, class... In, class Op, class... Views>
void map(const Context& context, std::string_view name, Op op, const View& out, const Views&... in) {
  constexpr int kArrays = 1 + static_cast<int>(sizeof...(In));
  const Layout<kArrays> layout = make_layout<kArrays>(out.shape, {out.strides, in.strides...});
  if (layout.count == 0) return;
  if constexpr (kWorthPacking<Out, In...>) {
    constexpr int V = kPack<Out, In...>;
    if (layout.is_dense() && is_aligned(out.data, V * sizeof(Out)) &&
        (is_aligned(in.data, V * sizeof(In)) && ...)) {
      const unsigned blocks = blocks_for(context, layout.count / V + 1);
      DTRAIN_LAUNCH(name, context.stream, blocks, kThreads, dense_kernel, layout.count, op,
                    out.template as<Out>(), in.template as<const In>()...);
      return;
    }
  }
  DTRAIN_LAUNCH(name, context.stream, blocks_for(context, layout.count), kThreads, strided_kernel, layout, op,
                out.template as<Out>(), in.template as<const In>()...);
}

template <class T, class Functor>
struct UnaryCall {
  __device__ T operator()(T x) const { return cast<T>(Functor{}(load(x))); }
};

template <class T, class Functor>
struct ParametricCall {
  Compute<T> a, b;
  __device__ T operator()(T x) const { return cast<T>(Functor{}(load(x), a, b)); }
};

template <class T, class Functor>
struct BinaryCall {
  __device__ T operator()(T a, T b) const { return cast<T>(Functor{}(load(a), load(b))); }
};

/// Integer division that notes a zero divisor instead of trapping.
struct SafeDivision {
  FaultRecord* faults;
  __device__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    if (b != 0) return a / b;
    note_fault(faults, FaultKind::division, 0, 0, 0);
    return 0;
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class To, class From>
struct Cast {
  __device__ To operator()(From x) const { return cast<To>(x); }
};

/// f32, bf16 and f16 scale in float as PyTorch does; everything else in double, so that u8 pixels times 1/255
/// are the correctly rounded quotients.
template <class From, class To>
using AffineType = std::conditional_t<kHot<From> && kHot<To>, float, double>;

template <class To, class From>
struct Affine {
  using A = AffineType<From, To>;
  A scale, shift;
  __device__ To operator()(From x) const { return cast<To>(scale * cast<A>(x) + shift); }
};

template <class T>
struct Accumulate {
  Compute<T> factor;
  __device__ T operator()(T to, T x) const { return cast<T>(load(to) + load(x) * factor); }
};

template <class T, class C>
struct Where {
  __device__ T operator()(C condition, T a, T b) const { return load(condition) != Compute<C>(0) ? a : b; }
};

template <class T>
T host_cast(double value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, F16>) {
    return __float2half_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Bool>) {
    return Bool(value != 0);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace

void CudaKernels::fill(const View& out, double value) {
  dispatch_any(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T>(context_, "fill", Constant<T>{host_cast<T>(value)}, out);
  });
}

void CudaKernels::copy(const View& in, const View& out) {
  if (in.dtype == out.dtype) {  // bits are bits
    const auto same = [&](auto tag) {
      using T = decltype(tag);
      map<T, T>(context_, "copy", Cast<T, T>{}, out, in);
    };
    switch (size_of(in.dtype)) {
      case 8:
        return same(std::int64_t{});
      case 4:
        return same(std::int32_t{});
      case 2:
        return same(BF16{});
      default:
        return same(std::uint8_t{});
    }
  }
  dispatch_any(in.dtype, [&](auto from_tag) {
    dispatch_any(out.dtype, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      if constexpr (!std::is_same_v<From, To>) map<To, From>(context_, "copy", Cast<To, From>{}, out, in);
    });
  });
}

void CudaKernels::affine(const View& in, double scale, double shift, const View& out) {
  dispatch_scalable("affine", in.dtype, [&](auto from_tag) {
    dispatch_scalable("affine", out.dtype, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      using A = AffineType<From, To>;
      map<To, From>(context_, "affine", Affine<To, From>{static_cast<A>(scale), static_cast<A>(shift)}, out,
                    in);
    });
  });
}

void CudaKernels::unary(UnaryOp op, const View& in, const View& out) {
  functor::visit(op, [&](auto functor) {
    using Functor = decltype(functor);
    const auto run = [&](auto tag) {
      using T = decltype(tag);
      map<T, T>(context_, "unary", UnaryCall<T, Functor>{}, out, in);
    };
    if constexpr (Functor::kIntegers) return dispatch_arithmetic("unary", in.dtype, run);
    dispatch_floating("unary", in.dtype, run);
  });
}

void CudaKernels::parametric(ParametricOp op, const View& in, double a, double b, const View& out) {
  functor::visit(op, [&](auto functor) {
    dispatch_floating("parametric", in.dtype, [&](auto tag) {
      using T = decltype(tag);
      using C = Compute<T>;
      map<T, T>(context_, "parametric",
                ParametricCall<T, decltype(functor)>{static_cast<C>(a), static_cast<C>(b)}, out, in);
    });
  });
}

void CudaKernels::binary(BinaryOp op, const View& a, const View& b, const View& out) {
  if (op == BinaryOp::div && out.dtype == DType::i64) {
    using I = std::int64_t;
    return map<I, I, I>(context_, "binary div", SafeDivision{context_.faults.record()}, out, a, b);
  }
  functor::visit(op, [&](auto functor) {
    using Functor = decltype(functor);
    const auto run = [&](auto tag) {
      using T = decltype(tag);
      map<T, T, T>(context_, "binary", BinaryCall<T, Functor>{}, out, a, b);
    };
    if constexpr (functor::takes_integers<Functor>()) return dispatch_arithmetic("binary", out.dtype, run);
    dispatch_floating("binary", out.dtype, run);
  });
}

void CudaKernels::where(const View& condition, const View& a, const View& b, const View& out) {
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    dispatch_any(condition.dtype, [&](auto condition_tag) {
      using C = decltype(condition_tag);
      map<T, C, T, T>(context_, "where", Where<T, C>{}, out, condition, a, b);
    });
  };
  if (out.dtype == DType::f32) return run(float{});  // these two are worth packing
  if (is_half(out.dtype)) return run(BF16{});
  dispatch_bits(out.dtype, run);
}

void CudaKernels::accumulate(const View& in, double scale, const View& out) {
  dispatch_floating("accumulate", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    map<T, T, T>(context_, "accumulate", Accumulate<T>{static_cast<Compute<T>>(scale)}, out, out, in);
  });
}

}  // namespace dtrain::cuda
