// The loops of winograd_loops.h for f32 in vectors of four, which every processor of 64 bits has.
#include "runtime/device/cpu/convolution/winograd_loops.h"

namespace dtrain::cpu::baseline {
namespace {

using V = float __attribute__((vector_size(16)));
using InMemory = float __attribute__((vector_size(16), aligned(4), may_alias));

struct Element {
  using Stored = float;
  static constexpr int kPack = 1;
  static constexpr int kProductRows = 6, kGradientRows = 4;

  static V load(const float* from) { return *reinterpret_cast<const InMemory*>(from); }
  static void store(V value, float* to) { *reinterpret_cast<InMemory*>(to) = value; }
  static V load_word(const float* from) { return load(from); }
  static void store_word(V value, float* to) { store(value, to); }
  static V word(V value, V /*the same*/) { return value; }
  static V all(float value) { return V{value, value, value, value}; }
  static V multiply_add(V a, V b, V sum) { return a * b + sum; }
};

#include "runtime/device/cpu/convolution/winograd_filters.h"
#include "runtime/device/cpu/convolution/winograd_lines.h"
#include "runtime/device/cpu/convolution/winograd_loops_impl.h"

const WinogradLoops kSmall = loops_of<SmallTile>(), kLarge = loops_of<LargeTile>();

}  // namespace

const WinogradTable kWinogradF32{&kSmall, &kLarge};

}  // namespace dtrain::cpu::baseline
