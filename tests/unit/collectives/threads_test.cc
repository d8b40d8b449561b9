// Ranks that are threads: how they meet, and which of several errors is thrown where they were started. What
// their collectives do is tested with those of processes (tests/ranks).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "collectives/factory.h"
#include "runtime/base/error.h"
#include "tests/support/few_threads.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();

TEST(ThreadRanks, RunOnceEachAndSumUp) {
  NullLog log;
  std::atomic<int> runs = 0, total = 0;
  run_thread_ranks(5, {}, log, [&](Communicator& ranks) {
    ++runs;
    std::int32_t sum = ranks.rank();
    ranks.all_reduce({&sum, 1, DType::i32}, ReduceOp::sum, "sum")->wait(kNever);
    total += sum;
    EXPECT_EQ(ranks.size(), 5);
    EXPECT_EQ(ranks.backend(), "threads");
  });
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(total, 5 * (0 + 1 + 2 + 3 + 4));
}

TEST(ThreadRanks, TheCauseIsThrownAndNotItsConsequences) {
  NullLog log;
  std::atomic<int> told = 0;
  const auto run = [&] {
    run_thread_ranks(3, {}, log, [&](Communicator& ranks) {
      ranks.barrier("start")->wait(kNever);
      if (ranks.rank() == 1) throw DataError("faces.npy", 8, "a header", "nothing");
      try {
        ranks.barrier("end")->wait(kNever);
      } catch (const PeerError& error) {
        if (std::string_view(error.what()).find("faces.npy") != std::string_view::npos) ++told;
        throw;
      }
    });
  };
  EXPECT_THROW(run(), DataError);
  EXPECT_EQ(told, 2) << "the other ranks hear why";
}

TEST(ThreadRanks, NoneBeginsWhereOneHasNoThread) {
  const auto said = test::said_with_few_threads(2, [] {
    NullLog log;
    run_thread_ranks(4, {}, log, [](Communicator&) { ::_exit(3); });
  });
  if (!said) GTEST_SKIP() << "needs root, to become a user without other processes";
  EXPECT_THAT(*said, HasSubstr("SystemError: start the thread dtrain-rank-2"));
}

TEST(ThreadRanks, ThoseThatCannotCommunicateEndTheOthers) {
  const auto said = test::said_with_few_threads(4 + 2, [] {
    NullLog log;
    run_thread_ranks(4, {.timeout = std::chrono::hours(1)}, log,
                     [](Communicator& ranks) { ranks.barrier("start")->wait(kNever); });
  });
  if (!said) GTEST_SKIP() << "needs root, to become a user without other processes";
  EXPECT_THAT(*said, HasSubstr("SystemError: start the thread dtrain-comm"));
}

TEST(ThreadRanks, SplitAgainAndAgain) {
  NullLog log;
  run_thread_ranks(4, {}, log, [](Communicator& ranks) {
    for (int round = 0; round < 3; ++round) {
      const auto pair = ranks.split(ranks.rank() / 2, ranks.rank(), kNever);
      std::int32_t sum = ranks.rank();
      pair->all_reduce({&sum, 1, DType::i32}, ReduceOp::sum, "pair")->wait(kNever);
      EXPECT_EQ(sum, ranks.rank() < 2 ? 1 : 5);
      const auto alone = pair->split(pair->rank(), 0, kNever);
      EXPECT_EQ(alone->size(), 1);
      alone->barrier("alone")->wait(kNever);
    }
  });
}

TEST(ThreadRendezvous, NamesWhoDoesNotCome) {
  NullLog log;
  Bootstrap bootstrap;
  bootstrap.size = 3;
  bootstrap.rank = 0;
  bootstrap.timeout = std::chrono::milliseconds(50);
  bootstrap.rendezvous = make_thread_rendezvous();
  std::thread other([bootstrap]() mutable {
    NullLog quiet;
    bootstrap.rank = 2;
    EXPECT_THROW(make_communicator(Backend::automatic, bootstrap, quiet), PeerError);
  });
  EXPECT_THAT(test::message_of([&] { make_communicator(Backend::automatic, bootstrap, log); }),
              HasSubstr("rank 1 did not join"));
  other.join();
}

TEST(ThreadRendezvous, WantsDifferentRanksAndOneSize) {
  NullLog log;
  Bootstrap bootstrap;
  bootstrap.size = 2;
  EXPECT_THAT(test::message_of([&] { make_communicator(Backend::threads, bootstrap, log); }),
              HasSubstr("expected a rendezvous"));
  bootstrap.rendezvous = make_thread_rendezvous();
  std::atomic<bool> refused = false;
  const auto come = [&] {
    try {
      NullLog quiet;
      Bootstrap mine = bootstrap;
      mine.timeout = std::chrono::seconds(1);
      make_communicator(Backend::threads, mine, quiet);
    } catch (const UsageError&) {
      refused = true;
    } catch (const PeerError&) {
      // The first waits for a rank that does not come.
    }
  };
  std::thread first(come), second(come);
  first.join(), second.join();
  EXPECT_TRUE(refused) << "both said that they are rank 0";
}

}  // namespace
}  // namespace dtrain
