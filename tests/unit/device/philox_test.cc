// Philox against the vectors that its authors publish (Random123, kat_vectors).
#include "runtime/device/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace dtrain {
namespace {

void expect_words(std::uint64_t key, std::uint64_t low, std::uint64_t high,
                  const std::array<std::uint32_t, 4>& expected) {
  const Philox random(key, low, high);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(random.words[i], expected[i]) << i;
}

TEST(Philox, GivesThePublishedWords) {
  expect_words(0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(~0ULL, ~0ULL, ~0ULL, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

}  // namespace
}  // namespace dtrain
