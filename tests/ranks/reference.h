// What every collective is compared with: values that any rank can compute, combined along the tree over
// the ranks, in float32 for bf16 and fp16.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "collectives/communicator.h"

namespace dtrain::test {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Small whole numbers and fractions, different for every rank and place; products of seven stay finite.
template <class T>
T value(int rank, std::size_t i) {
  const auto mixed = static_cast<unsigned>((i * 2654435761U) ^ (static_cast<unsigned>(rank) * 40503U)) % 97U;
  if constexpr (kIsHalf<T>) return T(0.37F + static_cast<float>(mixed) / 31.0F);
  if constexpr (std::is_same_v<T, Bool>) return Bool(mixed % 2 == 1);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(0.37 + mixed / 31.0);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(mixed);
}

template <class T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value<T>(rank, i);
  return all;
}

template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, std::conditional_t<std::is_same_v<T, Bool>, bool, T>>;

template <class W>
W combine(W a, W b, ReduceOp op) {
  if constexpr (std::is_integral_v<W>) {  // integers wrap
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    if (op == ReduceOp::sum) return static_cast<W>(x + y);
    if (op == ReduceOp::prod) return static_cast<W>(x * y);
  }
  if (op == ReduceOp::sum) return static_cast<W>(a + b);
  if (op == ReduceOp::prod) return static_cast<W>(a * b);
  return op == ReduceOp::max ? std::max(a, b) : std::min(a, b);
}

// Of the contributions of `ranks` ranks from `first` on, along a tree: the largest power of two below their
// number is on the left.
template <class T, class Value>
Wide<T> along_the_tree(int first, int ranks, ReduceOp op, const Value& value_of) {
  if (ranks == 1) return static_cast<Wide<T>>(value_of(first));
  int left = 1;
  while (2 * left < ranks) left *= 2;
  return combine<Wide<T>>(along_the_tree<T>(first, left, op, value_of),
                          along_the_tree<T>(first + left, ranks - left, op, value_of), op);
}

template <class T>
std::vector<T> reference(int world, std::size_t count, ReduceOp op) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<T>(along_the_tree<T>(0, world, op, [&](int rank) { return value<T>(rank, i); }));
  return all;
}

template <class T>
MemorySpan span_of(std::vector<T>& data) {
  return {data.data(), data.size(), dtype_of<T>};
}

template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  const auto same_bits = [](const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) == 0; };
  if (got.size() == expected.size() && std::equal(got.begin(), got.end(), expected.begin(), same_bits))
    return;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) != 0) {
      throw std::runtime_error(fmt::format("{}: element {} differs", what, i));
    }
  }
}

}  // namespace dtrain::test
