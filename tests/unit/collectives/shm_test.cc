// Messages through shared memory, between ranks that live in this process: rings that fill up, messages of
// several pieces, order, reading in place, and how it ends.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "collectives/shm/shared_memory.h"
#include "collectives/shm/shm_progress_engine.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Gives up a wait that should have ended.
class Guard final : public p2p::Watchdog {
 public:
  void tick() override {
    if (deadline_.expired()) throw std::runtime_error("waited for too long");
  }

 private:
  Deadline deadline_ = Deadline::after(std::chrono::seconds(20));
};

// A watchdog whose wait ends at its first tick.
class AtOnce final : public p2p::Watchdog {
 public:
  struct Ticked {};
  void tick() override { throw Ticked{}; }
};

std::vector<std::byte> bytes(std::size_t count, int seed) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::byte>((i * 131 + i / 1000 + static_cast<std::size_t>(seed)) & 0xff);
  return all;
}

class ShmTraffic : public testing::Test {
 protected:
  ShmLayout layout_{2};
  SharedMemory memory_ = SharedMemory::create(layout_.total_bytes());
  ShmProgressEngine zero_{memory_.data(), layout_, 0, {0, 1}, nullptr},
      one_{memory_.data(), layout_, 1, {0, 1}, nullptr};
  Guard guard_;
  int sends_ = 0, receives_ = 0;
};

TEST_F(ShmTraffic, MessagesOfAnySizeArriveWhole) {
  const std::size_t slot = layout_.slot_bytes();
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, slot - 1, slot, slot + 1, 11 * slot + 17}) {
    const auto sent = bytes(size, 3);
    std::vector<std::byte> got(size);
    std::thread other([&] {
      one_.receive(0, 8, got.data(), size, receives_);
      one_.wait(receives_, guard_);
    });
    zero_.send(1, 8, sent.data(), size, sends_);
    zero_.wait(sends_, guard_);
    other.join();
    EXPECT_EQ(got, sent) << size << " bytes";
  }
}

TEST_F(ShmTraffic, SenderWaitsForFreeSlotsOnly) {
  const auto message = bytes(10, 1);
  for (std::size_t i = 0; i < SpscRing::kSlots; ++i) zero_.send(1, 4, message.data(), message.size(), sends_);
  EXPECT_EQ(sends_, 0) << "a message is sent once it is in the ring";
  zero_.send(1, 4, message.data(), message.size(), sends_);
  EXPECT_EQ(sends_, 1);
  AtOnce impatient;
  EXPECT_THROW(zero_.wait(sends_, impatient), AtOnce::Ticked);

  std::vector<std::byte> got(message.size());
  one_.receive(0, 4, got.data(), got.size(), receives_);
  one_.wait(receives_, guard_);
  zero_.wait(sends_, guard_);
  EXPECT_EQ(got, message);
}

TEST_F(ShmTraffic, TagsDecideAndEqualTagsKeepTheirOrder) {
  const auto first = bytes(100, 1), second = bytes(100, 2), third = bytes(100, 3);
  zero_.send(1, 8, first.data(), 100, sends_);
  zero_.send(1, 4, second.data(), 100, sends_);
  zero_.send(1, 8, third.data(), 100, sends_);
  std::vector<std::byte> a(100), b(100), c(100);
  one_.receive(0, 4, b.data(), 100, receives_);
  one_.receive(0, 8, a.data(), 100, receives_);
  one_.receive(0, 8, c.data(), 100, receives_);
  one_.wait(receives_, guard_);
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
  EXPECT_EQ(c, third);
}

// A watchdog during whose first tick, just before the waiting rank falls asleep, a message comes.
class SendsAtATick final : public p2p::Watchdog {
 public:
  explicit SendsAtATick(ShmProgressEngine& from) : from_(from) {}
  void tick() override {
    if (ticks_++ == 0) from_.send(1, 8, &byte_, 1, pending_);
    guard_.tick();
  }

 private:
  ShmProgressEngine& from_;
  const std::byte byte_{1};
  int ticks_ = 0, pending_ = 0;
  Guard guard_;
};

TEST_F(ShmTraffic, WhatEndsASleepIsTakenOnce) {
  SendsAtATick watchdog(zero_);
  EXPECT_EQ(one_.take_any(8, watchdog), 0);
}

TEST_F(ShmTraffic, AMessageNobodyExpectsIsNotTaken) {
  const auto message = bytes(100, 1);
  zero_.send(1, 8, message.data(), 100, sends_);
  std::vector<std::byte> got(100);
  one_.receive(0, 12, got.data(), 100, receives_);
  AtOnce impatient;
  EXPECT_THROW(one_.wait(receives_, impatient), AtOnce::Ticked);
  EXPECT_EQ(got, std::vector<std::byte>(100));
}

TEST_F(ShmTraffic, ALongerMessageThanExpectedOverwritesNothing) {
  const auto message = bytes(100, 1);
  zero_.send(1, 8, message.data(), 100, sends_);
  std::vector<std::byte> got(100);
  one_.receive(0, 8, got.data(), 50, receives_);
  EXPECT_THROW(one_.wait(receives_, guard_), p2p::LinkLost);
  EXPECT_EQ(got, std::vector<std::byte>(100));
}

TEST_F(ShmTraffic, WhatIsReadInPlaceStaysUntilReleased) {
  const auto first = bytes(1000, 1), second = bytes(1000, 2);
  zero_.send(1, 8, first.data(), 1000, sends_);
  zero_.send(1, 8, second.data(), 1000, sends_);
  std::vector<std::byte> spare(1000);
  const std::byte* place = nullptr;
  one_.receive_in_place(0, 8, spare.data(), 1000, receives_, place);
  one_.wait(receives_, guard_);
  ASSERT_NE(place, nullptr);
  EXPECT_NE(place, spare.data());
  EXPECT_EQ(std::memcmp(place, first.data(), 1000), 0);

  const std::byte* next = nullptr;
  one_.receive_in_place(0, 8, spare.data(), 1000, receives_, next);
  AtOnce impatient;
  EXPECT_THROW(one_.wait(receives_, impatient), AtOnce::Ticked) << "the first is still being read";
  one_.release(0);
  one_.wait(receives_, guard_);
  EXPECT_EQ(std::memcmp(next, second.data(), 1000), 0);
}

TEST_F(ShmTraffic, WhatDoesNotFitASlotIsPutTogether) {
  const std::size_t size = 2 * layout_.slot_bytes() + 5;
  const auto message = bytes(size, 1);
  zero_.send(1, 8, message.data(), size, sends_);
  std::vector<std::byte> spare(size);
  const std::byte* place = nullptr;
  one_.receive_in_place(0, 8, spare.data(), size, receives_, place);
  one_.wait(receives_, guard_);
  EXPECT_EQ(place, spare.data());
  EXPECT_EQ(spare, message);
}

TEST_F(ShmTraffic, ASleeperIsRung) {
  const auto message = bytes(100, 1);
  std::vector<std::byte> got(100);
  for (int round = 0; round < 20; ++round) {
    std::thread other([&] {
      one_.receive(0, 8, got.data(), 100, receives_);
      one_.wait(receives_, guard_);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
    zero_.send(1, 8, message.data(), 100, sends_);
    other.join();
    EXPECT_EQ(got, message);
  }
}

// Both look on without yielding, and only one of them can run.
TEST_F(ShmTraffic, RanksOnOneCoreLetEachOtherRun) {
  const auto stay_on_this_core = [core = ::sched_getcpu()] {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    ASSERT_EQ(::pthread_setaffinity_np(::pthread_self(), sizeof cores, &cores), 0);
  };
  constexpr int kRounds = 200;
  const auto pass = [&](ShmProgressEngine& rank, int peer, bool first) {
    stay_on_this_core();
    rank.set_patience(p2p::Patience::alone);
    std::vector<std::byte> data(100);
    int sends = 0, receives = 0;
    for (int round = 0; round < kRounds; ++round) {
      if (first || round > 0) rank.send(peer, 8, data.data(), data.size(), sends);
      rank.receive(peer, 8, data.data(), data.size(), receives);
      rank.wait(receives, guard_);
      rank.wait(sends, guard_);
    }
    if (!first) rank.send(peer, 8, data.data(), data.size(), sends);
  };
  std::thread other([&] { pass(one_, 0, false); });
  std::thread([&] { pass(zero_, 1, true); }).join();
  other.join();
}

TEST_F(ShmTraffic, WhatIsForgottenIsNeitherReadNorWritten) {
  const auto message = bytes(100, 1);
  for (std::size_t i = 0; i < SpscRing::kSlots; ++i) zero_.send(1, 8, message.data(), 100, sends_);
  {
    const auto gone = bytes(100, 2);
    int sends = 0;
    zero_.send(1, 8, gone.data(), 100, sends);
    zero_.forget(sends);
  }
  std::vector<std::byte> got(100);
  int receives = 0;
  one_.receive(0, 8, got.data(), 100, receives);
  one_.forget(receives);
  one_.receive(0, 12, got.data(), 100, receives_);
  AtOnce impatient;
  EXPECT_THROW(one_.wait(receives_, impatient), AtOnce::Ticked);
  EXPECT_EQ(got, std::vector<std::byte>(100));
}

TEST_F(ShmTraffic, AFailedGroupFailsEverywhere) {
  const auto message = bytes(100, 1);
  zero_.send(1, 8, message.data(), 100, sends_);
  zero_.close(true);
  EXPECT_THROW(zero_.send(1, 8, message.data(), 100, sends_), p2p::LinkLost);
  std::vector<std::byte> got(100);
  EXPECT_THROW(one_.receive(0, 8, got.data(), 100, receives_), p2p::LinkLost)
      << "though its message is there: the others have given the call up";
}

TEST_F(ShmTraffic, AGroupThatEndsInGoodOrderLetsOthersFinish) {
  const auto message = bytes(100, 1);
  zero_.send(1, 8, message.data(), 100, sends_);
  zero_.close(false);
  std::vector<std::byte> got(100);
  one_.receive(0, 8, got.data(), 100, receives_);
  one_.wait(receives_, guard_);
  EXPECT_EQ(got, message);
}

TEST(ShmWorld, EveryPairHasItsOwnChannel) {
  constexpr int kRanks = 5;
  const ShmLayout layout(kRanks);
  const SharedMemory memory = SharedMemory::create(layout.total_bytes());
  std::vector<ShmProgressEngine> ranks;
  ranks.reserve(kRanks);
  const std::vector<int> all = {0, 1, 2, 3, 4};
  for (const int rank : all) ranks.emplace_back(memory.data(), layout, rank, all, nullptr);
  const std::size_t size = layout.slot_bytes();
  const auto message_of = [&](int from, int to) { return bytes(size, 10 * from + to); };
  int sends = 0, receives = 0;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (to == from) continue;
      const auto message = message_of(from, to);
      ranks[static_cast<std::size_t>(from)].send(to, 8, message.data(), size, sends);
    }
  }
  ASSERT_EQ(sends, 0);
  Guard guard;
  for (int to = 0; to < kRanks; ++to) {
    for (int from = 0; from < kRanks; ++from) {
      if (to == from) continue;
      std::vector<std::byte> got(size);
      auto& rank = ranks[static_cast<std::size_t>(to)];
      rank.receive(from, 8, got.data(), size, receives);
      rank.wait(receives, guard);
      EXPECT_EQ(got, message_of(from, to)) << from << " to " << to;
    }
  }
}

TEST(SharedMemory, AnotherProcessOpensItByItsDescriptor) {
  const SharedMemory mine = SharedMemory::create(4096);
  const SharedMemory theirs = SharedMemory::of_process(::getpid(), mine.fd(), 4096);
  mine.data()[100] = std::byte{7};
  EXPECT_EQ(theirs.data()[100], std::byte{7});
  EXPECT_THROW(SharedMemory::of_process(::getpid(), mine.fd(), 8192), SystemError) << "too small";
  EXPECT_THROW(SharedMemory::of_process(::getpid(), 1'000'000, 4096), SystemError) << "no such descriptor";
}

}  // namespace
}  // namespace dtrain
