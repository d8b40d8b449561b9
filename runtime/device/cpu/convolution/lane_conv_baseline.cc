// The loops of lane_conv.h in vectors of four, which every processor of 64 bits has.
#include <cstring>

#include "runtime/device/cpu/convolution/lane_conv.h"

namespace dtrain::cpu::baseline {
namespace {

using V = float __attribute__((vector_size(16)));
using Words = std::int32_t __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(4)));
using InMemory = float __attribute__((vector_size(16), aligned(4), may_alias));

struct Element {
  static V load(const float* from) { return *reinterpret_cast<const InMemory*>(from); }
  static void store(V value, float* to) { *reinterpret_cast<InMemory*>(to) = value; }
  static V all(float value) { return V{value, value, value, value}; }
  static Words all_words(int value) { return Words{value, value, value, value}; }
  static V multiply_add(V a, V b, V sum) { return a * b + sum; }

  static V load_once(const V& from) { return from; }

  static void transpose(V (&r)[4]) {
    const V even0 = __builtin_shufflevector(r[0], r[1], 0, 4, 2, 6);
    const V odd0 = __builtin_shufflevector(r[0], r[1], 1, 5, 3, 7);
    const V even1 = __builtin_shufflevector(r[2], r[3], 0, 4, 2, 6);
    const V odd1 = __builtin_shufflevector(r[2], r[3], 1, 5, 3, 7);
    r[0] = __builtin_shufflevector(even0, even1, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(odd0, odd1, 0, 1, 4, 5);
    r[2] = __builtin_shufflevector(even0, even1, 2, 3, 6, 7);
    r[3] = __builtin_shufflevector(odd0, odd1, 2, 3, 6, 7);
  }

  static void store_bytes(Words words, std::uint8_t* to) {
    const Bytes bytes = __builtin_convertvector(words, Bytes);
    std::memcpy(to, &bytes, sizeof bytes);
  }
  static Words load_bytes(const std::uint8_t* from) {
    Bytes bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, Words);
  }

  /// The sums of four values.
  static V quarter(const V* v) {
    V rows[4] = {v[0], v[1], v[2], v[3]};
    transpose(rows);
    return (rows[0] + rows[2]) + (rows[1] + rows[3]);
  }
  /// Adds to `to` the sums over 16 lanes of four values; every four lanes lie `pitch` on.
  static void add_lanes(const V* value, int pitch, float* to) {
    const V outer = quarter(value) + quarter(value + 2 * pitch);
    const V inner = quarter(value + pitch) + quarter(value + 3 * pitch);
    store(load(to) + (outer + inner), to);
  }
};

#include "runtime/device/cpu/convolution/lane_conv_impl.h"

}  // namespace

const LaneLoops kLaneLoops{to_lanes, from_lanes, forward, unpool, backward_input, backward_weight};

}  // namespace dtrain::cpu::baseline
