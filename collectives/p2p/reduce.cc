#include "collectives/p2p/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace dtrain::p2p {
namespace {

struct Sum {
  template <class T>
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
    } else {
      return static_cast<T>(a + b);
    }
  }
};

struct Prod {
  template <class T>
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
    } else {
      return static_cast<T>(a * b);
    }
  }
};

struct Max {
  template <class T>
  static T apply(T a, T b) noexcept {
    return b > a ? b : a;
  }
};

struct Min {
  template <class T>
  static T apply(T a, T b) noexcept {
    return b < a ? b : a;
  }
};

// The type sums are formed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float,
                                std::conditional_t<std::is_same_v<T, Bool>, bool /* or, and */, T>>;

constexpr std::size_t kBlock = 1024;

// Two operands, the case of a world of two: no intermediate. `out` equals an input or is apart from both, so
// no iteration depends on another.
template <class Op, class T>
void combine_two(T* out, const T* a, const T* b, std::size_t count) noexcept {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    out[i] =
        static_cast<T>(Op::template apply<Wide<T>>(static_cast<Wide<T>>(a[i]), static_cast<Wide<T>>(b[i])));
  }
}

template <class Op, class T>
void combine(void* out_memory, std::span<const void* const> in, std::size_t count) noexcept {
  T* out = static_cast<T*>(out_memory);
  const auto input = [&](std::size_t which) { return static_cast<const T*>(in[which]); };
  if (in.size() == 2) return combine_two<Op>(out, input(0), input(1), count);
  std::array<Wide<T>, kBlock> block;
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t length = std::min(kBlock, count - start);
    for (std::size_t i = 0; i < length; ++i) block[i] = static_cast<Wide<T>>(input(0)[start + i]);
    for (std::size_t which = 1; which < in.size(); ++which) {
      const T* next = input(which) + start;
      for (std::size_t i = 0; i < length; ++i) {
        block[i] = Op::template apply<Wide<T>>(block[i], static_cast<Wide<T>>(next[i]));
      }
    }
    for (std::size_t i = 0; i < length; ++i) out[start + i] = static_cast<T>(block[i]);
  }
}

template <class T>
void combine_as(ReduceOp op, void* out, std::span<const void* const> in, std::size_t count) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return combine<Sum, T>(out, in, count);
    case ReduceOp::prod:
      return combine<Prod, T>(out, in, count);
    case ReduceOp::max:
      return combine<Max, T>(out, in, count);
    case ReduceOp::min:
      return combine<Min, T>(out, in, count);
  }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, void* out, std::span<const void* const> in,
            std::size_t count) noexcept {
  switch (dtype) {
    case DType::f32:
      return combine_as<float>(op, out, in, count);
    case DType::f64:
      return combine_as<double>(op, out, in, count);
    case DType::bf16:
      return combine_as<BFloat16>(op, out, in, count);
    case DType::i64:
      return combine_as<std::int64_t>(op, out, in, count);
    case DType::i32:
      return combine_as<std::int32_t>(op, out, in, count);
    case DType::u8:
      return combine_as<std::uint8_t>(op, out, in, count);
    case DType::f16:
      return combine_as<Float16>(op, out, in, count);
    case DType::i16:
      return combine_as<std::int16_t>(op, out, in, count);
    case DType::i8:
      return combine_as<std::int8_t>(op, out, in, count);
    case DType::boolean:
      return combine_as<Bool>(op, out, in, count);
  }
}

}  // namespace dtrain::p2p
