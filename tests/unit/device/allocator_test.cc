// The caching allocator: sizes, reuse, trimming, counting, threads.
#include "runtime/device/cpu/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/base/error.h"

namespace dtrain::cpu {
namespace {

TEST(Allocator, LaysLargeBlocksOnLargePages) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  Allocator allocator;
  for (const std::size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 1, 40 * kHugePage}) {
    void* const memory = allocator.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kHugePage, 0u) << bytes;
    std::memset(memory, 1, bytes);
    allocator.deallocate(memory, bytes);
  }
}

TEST(Allocator, BlocksAreAlignedAndLargeEnough) {
  Allocator allocator;
  std::vector<std::size_t> sizes = {0, 1, 63, 64, 65, 255, 256, 257, 320, 321, 511, 512, 513};
  for (std::size_t size = 1000; size < 3000000; size = size * 5 / 4 + 1) sizes.push_back(size);
  std::vector<void*> blocks;
  for (const std::size_t size : sizes) {
    blocks.push_back(allocator.allocate(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % 64, 0u);
    std::memset(blocks.back(), 0x5a, size);  // the sanitizer build sees a block that is too small
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) allocator.deallocate(blocks[i], sizes[i]);
  EXPECT_EQ(allocator.allocated_bytes(), 0u);
}

TEST(Allocator, GivesTheSameBlockBack) {
  Allocator allocator;
  void* first = allocator.allocate(1000000);
  allocator.deallocate(first, 1000000);
  EXPECT_LE(allocator.cached_bytes(), 1000000u * 5 / 4);
  void* second = allocator.allocate(1000001);  // the same size class
  void* third = allocator.allocate(1000001);
  allocator.deallocate(second, 1000001);
  allocator.deallocate(third, 1000001);
  void* fourth = allocator.allocate(1000000);
  EXPECT_TRUE(fourth == second || fourth == third);
  allocator.deallocate(fourth, 1000000);
}

TEST(Allocator, CachesNoMoreThanThePeak) {
  Allocator allocator;
  for (std::size_t size = 1 << 20; size < (1 << 23); size += 1 << 18) {
    allocator.deallocate(allocator.allocate(size), size);
    EXPECT_LE(allocator.cached_bytes(), allocator.peak_allocated_bytes());
  }
  allocator.trim();
  EXPECT_EQ(allocator.cached_bytes(), 0u);
}

TEST(Allocator, RefusesTheImpossibleAndNamesIt) {
  Allocator allocator;
  for (const std::size_t size : {std::size_t{1} << 60, ~std::size_t{0}}) {
    try {
      allocator.allocate(size);
      FAIL() << "did not throw";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(size)), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(allocator.allocated_bytes(), 0u);
}

TEST(Allocator, ThreadsDoNotShareBlocks) {
  Allocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator, t] {
      for (int round = 0; round < 2000; ++round) {
        const auto size = static_cast<std::size_t>(100 + (round * 37 + t * 11) % 5000);
        auto* block = static_cast<unsigned char*>(allocator.allocate(size));
        std::memset(block, t, size);
        for (std::size_t i = 0; i < size; i += 97) ASSERT_EQ(block[i], t);
        allocator.deallocate(block, size);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.allocated_bytes(), 0u);
}

}  // namespace
}  // namespace dtrain::cpu
