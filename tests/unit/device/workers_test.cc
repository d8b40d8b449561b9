// for_chunks(): each chunk once, by any thread, none of which is waited for before it has begun.
#include "runtime/device/cpu/workers/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <ctime>
#include <latch>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "runtime/device/cpu/workers/rest.h"
#include "runtime/device/cpu/workers/team.h"

namespace dtrain::cpu {
namespace {

constexpr double kMuch = 1e9;  ///< nanoseconds a chunk: enough to call the others

/// The thread's own number of workers, as it was afterwards.
class Workers : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_worker_count(GetParam()); }
  void TearDown() override { set_worker_count(before_); }
  const int before_ = worker_count();
};

TEST_P(Workers, DoEachChunkOnce) {
  for (const int chunks : {0, 1, 2, 7, 64, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<std::size_t>(chunks));
    std::atomic<int> strangers = 0;
    for_chunks(chunks, kMuch, [&](std::int64_t chunk, int worker) {
      ++done[static_cast<std::size_t>(chunk)];
      if (worker < 0 || worker >= GetParam()) ++strangers;
    });
    for (const auto& times : done) EXPECT_EQ(times, 1) << "of " << chunks;
    EXPECT_EQ(strangers, 0);
  }
}

TEST_P(Workers, CoverARangeWithoutGaps) {
  std::vector<std::atomic<int>> done(1001);
  for_ranges(1001, 64, kMuch, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
  });
  for (const auto& times : done) EXPECT_EQ(times, 1);
}

TEST_P(Workers, GiveTheSameBits) {
  constexpr std::int64_t kChunks = 97;
  std::vector<float> sums(kChunks);
  for_chunks(kChunks, kMuch, [&](std::int64_t chunk, int) {
    float sum = 0;
    for (int i = 0; i < 1000; ++i) sum += std::sin(static_cast<float>(1000 * chunk + i));
    sums[static_cast<std::size_t>(chunk)] = sum;
  });
  float total = 0, expected = 0;
  for (const float sum : sums) total += sum;
  for (std::int64_t chunk = 0; chunk < kChunks; ++chunk) {
    float sum = 0;
    for (int i = 0; i < 1000; ++i) sum += std::sin(static_cast<float>(1000 * chunk + i));
    expected += sum;
  }
  EXPECT_EQ(total, expected);
}

TEST_P(Workers, LeaveSmallWorkToTheCaller) {
  std::set<std::thread::id> who;
  for_chunks(100, 10, [&](std::int64_t, int worker) {
    who.insert(std::this_thread::get_id());
    EXPECT_EQ(worker, 0);
  });
  EXPECT_EQ(who, std::set{std::this_thread::get_id()});
}

TEST_P(Workers, ComputeAloneInsideAChunk) {
  std::atomic<int> inner = 0, crowds = 0;
  for_chunks(8, kMuch, [&](std::int64_t, int) {
    if (GetParam() > 1 && worker_count() != 1) ++crowds;
    for_chunks(5, kMuch,
               [&](std::int64_t, int worker) { inner += worker == 0 || GetParam() == 1 ? 1 : 100; });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_EQ(crowds, 0);
  EXPECT_EQ(worker_count(), GetParam());
}

TEST_P(Workers, RethrowWhatTheFirstChunkThrew) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    try {
      for_chunks(50, kMuch, [](std::int64_t chunk, int) {
        if (chunk % 10 == 3) throw std::runtime_error("chunk " + std::to_string(chunk));
      });
      FAIL() << "expected an exception";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()), "chunk 3");
    }
    std::atomic<int> after = 0;
    for_chunks(10, kMuch, [&](std::int64_t, int) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

TEST_P(Workers, AreEachThreadsOwn) {
  std::atomic<int> done = 0;
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      set_worker_count(caller + 1);
      for (int repeat = 0; repeat < 200; ++repeat) {
        for_chunks(9, kMuch, [&](std::int64_t, int worker) { done += worker <= caller ? 1 : 1000; });
      }
    });
  }
  callers.clear();
  EXPECT_EQ(done, 3 * 200 * 9);
  EXPECT_EQ(worker_count(), GetParam());
}

TEST_P(Workers, AreFewerAfterTheyWereMore) {
  for (const int count : {8, GetParam(), 5, GetParam()}) {
    set_worker_count(count);
    for (int repeat = 0; repeat < 100; ++repeat) {
      std::atomic<int> strangers = 0;
      for_chunks(16, kMuch, [&](std::int64_t, int worker) { strangers += worker < count ? 0 : 1; });
      EXPECT_EQ(strangers, 0);
    }
  }
}

TEST_P(Workers, SleepBetweenCalls) {
  const auto cpu_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  for (const bool told : {false, true}) {
    for_chunks(64, kMuch, [](std::int64_t, int) {});
    if (told) rest_workers();
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_LT(cpu_seconds() - before, 0.1) << "they spin for far less";
  }
  int done = 0;
  for_chunks(2, 10, [&](std::int64_t, int) { ++done; });
  EXPECT_EQ(done, 2);
}

// A thread that has no core yet: here one that waits before it is at work.
TEST(Team, DoesNotWaitForWhoHasNotBegun) {
  static std::latch* gate = nullptr;
  std::latch open(1);
  gate = &open;
  {
    Team team;
    std::atomic<int> done = 0;
    const auto run = [&] {
      ChunkQueue queue(20, 2, &done, [](void* state, std::int64_t, int worker) {
        *static_cast<std::atomic<int>*>(state) += worker == 0 ? 1 : 1000;
      });
      team.run(queue, 2, [] { gate->wait(); });
    };
    run();
    EXPECT_EQ(done, 20) << "the caller alone";
    open.count_down();
    for (int repeat = 0; repeat < 100; ++repeat) run();
    EXPECT_GE(done, 20 + 100 * 20);
  }
}

TEST_P(Workers, RestForAWhile) {
  for (const int most : {1, 3, 100}) {
    const WorkerLimit limit(most);
    EXPECT_EQ(worker_count(), std::min(GetParam(), most));
  }
  EXPECT_EQ(worker_count(), GetParam());
}

TEST_P(Workers, HaveScratchMemoryOfTheirOwn) {
  WorkerScratch scratch;
  scratch.prepare();
  std::vector<std::int64_t> seen(200);
  for_chunks(200, kMuch, [&](std::int64_t chunk, int worker) {
    auto* const own = reinterpret_cast<std::int64_t*>(scratch.of(worker).at_least(1024));
    for (int i = 0; i < 128; ++i) own[i] = chunk;
    std::this_thread::yield();
    for (int i = 0; i < 128; ++i) seen[static_cast<std::size_t>(chunk)] += own[i];
  });
  for (std::int64_t chunk = 0; chunk < 200; ++chunk)
    EXPECT_EQ(seen[static_cast<std::size_t>(chunk)], 128 * chunk);
}

INSTANTIATE_TEST_SUITE_P(Counts, Workers, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace dtrain::cpu
