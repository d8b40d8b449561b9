#include "runtime/base/keyed_random.h"

#include "runtime/base/random.h"

namespace dtrain {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

void KeyedGenerator::refill() noexcept {
  if (words_ != nullptr) {
    used_ = block_.size() - 1;
    block_[used_] = words_->next32();
    return;
  }
  block_ = philox4x32(counter_, key_);
  ++counter_[0];
  used_ = 0;
}

// The upper word of a product with a 64-bit draw, drawn again in the sliver that would bias it (Lemire, "Fast
// random integer generation in an interval", 2019).
std::uint64_t KeyedGenerator::below(std::uint64_t n) noexcept {
  using Wide = unsigned __int128;
  const std::uint64_t biased = (0 - n) % n;
  Wide product = static_cast<Wide>(next64()) * n;
  while (static_cast<std::uint64_t>(product) < biased) product = static_cast<Wide>(next64()) * n;
  return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace dtrain
