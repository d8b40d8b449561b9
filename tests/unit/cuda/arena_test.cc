// The memory of recorded graphs: pieces do not overlap, come back, merge, and segments go back once.
#include "runtime/device/cuda/memory/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>

namespace dtrain::cuda {
namespace {

/// Addresses without memory behind them: the arena never looks there.
class Segments {
 public:
  Arena arena() {
    return Arena([this](std::size_t bytes) { return grow(bytes); }, [this](void* at) { live.erase(at); });
  }
  void* grow(std::size_t bytes) {
    if (refuse) throw std::runtime_error("no memory");
    void* const at = reinterpret_cast<void*>(next);
    next += bytes;  // the next segment begins where this one ends: they must not merge
    live[at] = bytes;
    return at;
  }
  std::map<void*, std::size_t> live;
  std::uintptr_t next = std::uintptr_t{1} << 40;
  bool refuse = false;
};

TEST(Arena, PiecesAreAlignedApartAndInsideASegment) {
  Segments segments;
  Arena arena = segments.arena();
  std::mt19937 random(3);
  std::map<std::byte*, std::size_t> held;
  for (int round = 0; round < 3000; ++round) {
    if (held.size() > 40 || (!held.empty() && random() % 3 == 0)) {
      auto victim = std::next(held.begin(), static_cast<long>(random() % held.size()));
      EXPECT_TRUE(arena.deallocate(victim->first));
      held.erase(victim);
      continue;
    }
    const std::size_t bytes = 1 + random() % (std::size_t{9} << 20);
    auto* const at = static_cast<std::byte*>(arena.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % Arena::kAlignment, 0u);
    const auto after = held.lower_bound(at);
    if (after != held.end()) {
      EXPECT_LE(at + bytes, after->first);
    }
    if (after != held.begin()) {
      EXPECT_LE(std::prev(after)->first + std::prev(after)->second, at);
    }
    auto segment = segments.live.upper_bound(at);
    ASSERT_NE(segment, segments.live.begin());
    --segment;
    EXPECT_LE(at + bytes, static_cast<std::byte*>(segment->first) + segment->second);
    held[at] = bytes;
  }
  for (const auto& [at, bytes] : held) EXPECT_TRUE(arena.deallocate(at));
  EXPECT_TRUE(arena.is_idle());
}

TEST(Arena, TheSameCallsAgainNeedNoMoreMemory) {
  Segments segments;
  Arena arena = segments.arena();
  for (int round = 0; round < 50; ++round) {
    void* const a = arena.allocate(Arena::kSmallestSegment / 2);
    void* const b = arena.allocate(1000);
    EXPECT_TRUE(arena.deallocate(a));
    void* const c = arena.allocate(Arena::kSmallestSegment / 2);
    EXPECT_EQ(a, c);
    EXPECT_TRUE(arena.deallocate(c));
    EXPECT_TRUE(arena.deallocate(b));
  }
  EXPECT_EQ(segments.live.size(), 1u);
  EXPECT_EQ(arena.allocate(Arena::kSmallestSegment), segments.live.begin()->first);  // all merged again
}

TEST(Arena, LargePiecesGetASegmentOfTheirOwn) {
  Segments segments;
  {
    Arena arena = segments.arena();
    void* const small = arena.allocate(1);
    void* const large = arena.allocate(3 * Arena::kSmallestSegment);
    EXPECT_EQ(segments.live.at(large), 3 * Arena::kSmallestSegment);
    EXPECT_TRUE(arena.deallocate(small));
    EXPECT_TRUE(arena.deallocate(large));
    // The two segments touch, but no piece spans them.
    void* const both = arena.allocate(4 * Arena::kSmallestSegment);
    EXPECT_EQ(segments.live.at(both), 4 * Arena::kSmallestSegment);
    EXPECT_EQ(segments.live.size(), 3u);
  }
  EXPECT_TRUE(segments.live.empty());
}

TEST(Arena, KnowsItsOwnAndSurvivesAFailure) {
  Segments segments;
  Arena arena = segments.arena();
  EXPECT_FALSE(arena.deallocate(reinterpret_cast<void*>(4096)));
  segments.refuse = true;
  EXPECT_THROW(arena.allocate(1), std::runtime_error);
  EXPECT_TRUE(arena.is_idle());
  segments.refuse = false;
  void* const at = arena.allocate(1);
  EXPECT_FALSE(arena.is_idle());
  EXPECT_TRUE(arena.deallocate(at));
  EXPECT_FALSE(arena.deallocate(at));
}

}  // namespace
}  // namespace dtrain::cuda
