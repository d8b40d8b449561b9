#include "collectives/p2p/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "collectives/p2p/algorithm/sum_tree.h"

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

// As it is kept between ranks.
template <class T>
using Kept = std::conditional_t<std::is_same_v<T, Bool>, Bool, Wide<T>>;

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

/// One block of elements at a time: the sums of a node's halves stay in a core's own cache.
template <class Op, class T>
class TreeSum {
 public:
  using Block = std::array<Wide<T>, kBlock>;

  explicit TreeSum(std::span<const Operand> in) : in_(in) {
    for (const Operand& operand : in_) leaves_ += operand.leaves;
  }

  template <class Out>
  void store(Out* out, std::size_t count) {
    if constexpr (std::is_same_v<Out, T>) {
      if (in_.size() == 2 && leaves_ == 2)
        return combine_two<Op>(out, static_cast<const T*>(in_[0].data), static_cast<const T*>(in_[1].data),
                               count);
    }
    Block total;
    for (start_ = 0; start_ < count; start_ += kBlock) {
      length_ = std::min(kBlock, count - start_);
      next_ = 0;
      add_up(leaves_, total);
      for (std::size_t i = 0; i < length_; ++i) out[start_ + i] = static_cast<Out>(total[i]);
    }
  }

 private:
  /// Calls `body` with the elements of the next operand.
  template <class Body>
  void with_next(Body body) {
    const Operand& operand = in_[next_++];
    if (operand.leaves == 1) return body(static_cast<const T*>(operand.data) + start_);
    body(static_cast<const Kept<T>*>(operand.data) + start_);
  }

  /// The node of `leaves` leaves that begins with the next operand.
  void add_up(int leaves, Block& out) {
    if (in_[next_].leaves == leaves) {
      return with_next([&](const auto* from) {
        for (std::size_t i = 0; i < length_; ++i) out[i] = static_cast<Wide<T>>(from[i]);
      });
    }
    const int left = left_leaves(leaves);
    add_up(left, out);
    if (in_[next_].leaves == leaves - left) {
      return with_next([&](const auto* from) {
        for (std::size_t i = 0; i < length_; ++i)
          out[i] = Op::template apply<Wide<T>>(out[i], static_cast<Wide<T>>(from[i]));
      });
    }
    Block right;
    add_up(leaves - left, right);
    for (std::size_t i = 0; i < length_; ++i) out[i] = Op::template apply<Wide<T>>(out[i], right[i]);
  }

  const std::span<const Operand> in_;
  int leaves_ = 0;
  std::size_t next_ = 0;                // operand
  std::size_t start_ = 0, length_ = 0;  // of the block
};

/// Calls `body` with a value of the C++ type of `dtype`.
template <class Body>
void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    case DType::bf16:
      return body(BFloat16{});
    case DType::i64:
      return body(std::int64_t{});
    case DType::i32:
      return body(std::int32_t{});
    case DType::u8:
      return body(std::uint8_t{});
    case DType::f16:
      return body(Float16{});
    case DType::i16:
      return body(std::int16_t{});
    case DType::i8:
      return body(std::int8_t{});
    case DType::boolean:
      return body(Bool{});
  }
}

template <class Out, class T>
void combine(ReduceOp op, void* out, std::span<const Operand> in, std::size_t count) {
  Out* const to = static_cast<Out*>(out);
  switch (op) {
    case ReduceOp::sum:
      return TreeSum<Sum, T>(in).store(to, count);
    case ReduceOp::prod:
      return TreeSum<Prod, T>(in).store(to, count);
    case ReduceOp::max:
      return TreeSum<Max, T>(in).store(to, count);
    case ReduceOp::min:
      return TreeSum<Min, T>(in).store(to, count);
  }
}

}  // namespace

DType sum_dtype(DType dtype) noexcept {
  DType kept = dtype;
  with_type(dtype, [&]<class T>(T) { kept = dtype_of<Kept<T>>; });
  return kept;
}

void reduce(DType dtype, ReduceOp op, void* out, std::span<const Operand> in, std::size_t count) noexcept {
  with_type(dtype, [&]<class T>(T) { combine<T, T>(op, out, in, count); });
}

void reduce_to_node(DType dtype, ReduceOp op, void* out, std::span<const Operand> in,
                    std::size_t count) noexcept {
  if (in.size() == 1 && in.front().leaves == 1) return reduce(dtype, op, out, in, count);
  with_type(dtype, [&]<class T>(T) { combine<Kept<T>, T>(op, out, in, count); });
}

}  // namespace dtrain::p2p
