// Sums and largest elements in an order that the algorithm fixes: element i goes to lane i mod 16, four
// elements of a lane are added to each other before they join it, and the lanes meet in halves. So the bits
// are the same whatever vectors a processor has, and there is no chain of additions to wait for. For loops
// inside widest().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dtrain::cpu {

/// Independent partial results: one vector of AVX-512, four of SSE.
inline constexpr std::int64_t kSumLanes = 16;

/// What elements of arithmetic type C are summed in.
template <class C>
using SumType = std::conditional_t<std::is_integral_v<C>, std::int64_t, double>;

/// Combines the lanes in halves; the result is in the first. Loops of a length that the compiler knows, and
/// leaves as loops: of an unrolled one it would make operations on one lane each.
template <std::int64_t kCount, class Value, class Op>
inline Value join_lanes(Value* lanes, Op op) {
  constexpr std::int64_t kHalf = kCount / 2;
#pragma GCC unroll 1
  for (std::int64_t lane = 0; lane < kHalf; ++lane) lanes[lane] = op(lanes[lane], lanes[lane + kHalf]);
  if constexpr (kHalf > 1) join_lanes<kHalf>(lanes, op);
  return lanes[0];
}

/// Σ term(i), i from 0 to count - 1, of each of `terms` in one pass. Four terms meet in C, everything else in
/// double: two roundings in C at most.
template <class C, class... Terms>
inline std::array<SumType<C>, sizeof...(Terms)> sums_of(std::int64_t count, Terms... terms) {
  using Sum = SumType<C>;
  Sum lanes[sizeof...(Terms)][kSumLanes];  // `= {}` would be a string instruction, as long as a short row
  for (auto& of_term : lanes) {
    for (Sum& lane : of_term) lane = 0;
  }
  const auto add = [&](std::int64_t lane, auto value_of) {
    std::size_t k = 0;
    ((lanes[k++][lane] += static_cast<Sum>(value_of(terms))), ...);
  };
  std::int64_t i = 0;
  for (; i + 4 * kSumLanes <= count; i += 4 * kSumLanes) {
    for (std::int64_t lane = 0; lane < kSumLanes; ++lane) {
      const auto four = [at = i + lane](const auto& term) {
        return (term(at) + term(at + kSumLanes)) + (term(at + 2 * kSumLanes) + term(at + 3 * kSumLanes));
      };
      add(lane, four);
    }
  }
  const auto one = [](std::int64_t at) { return [at](const auto& term) { return term(at); }; };
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (std::int64_t lane = 0; lane < kSumLanes; ++lane) add(lane, one(i + lane));
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) add(lane, one(i));
  std::array<Sum, sizeof...(Terms)> sums;
  for (std::size_t k = 0; k < sizeof...(Terms); ++k)
    sums[k] = join_lanes<kSumLanes>(lanes[k], [](Sum a, Sum b) { return a + b; });
  return sums;
}

/// Of one.
template <class C, class Term>
inline SumType<C> sum_of(std::int64_t count, Term term) {
  return sums_of<C>(count, term)[0];
}

/// op of all term(i), i from 0 to count - 1, count > 0: the largest or the least of them. Comparisons are
/// vectorized in loops alone, so there are more lanes than a compiler unrolls.
template <class C, class Op, class Term>
inline C extreme_of(std::int64_t count, Op op, Term term) {
  constexpr std::int64_t kWide = 2 * kSumLanes;
  const C first = term(0);
  C lanes[kWide];
  for (C& lane : lanes) lane = first;
  std::int64_t i = 0;
  for (; i + 4 * kWide <= count; i += 4 * kWide) {
    for (std::int64_t lane = 0; lane < kWide; ++lane) {
      const std::int64_t at = i + lane;
      lanes[lane] =
          op(lanes[lane], op(op(term(at), term(at + kWide)), op(term(at + 2 * kWide), term(at + 3 * kWide))));
    }
  }
  for (; i + kWide <= count; i += kWide) {
    for (std::int64_t lane = 0; lane < kWide; ++lane) lanes[lane] = op(lanes[lane], term(i + lane));
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] = op(lanes[lane], term(i));
  return join_lanes<kWide>(lanes, op);
}

}  // namespace dtrain::cpu
