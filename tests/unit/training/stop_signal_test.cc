// Asks for a checkpoint, and the copies of one that reach other ranks later.
#include "training/start/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/base/clock.h"

namespace dtrain {
namespace {

constexpr std::chrono::milliseconds kLook{1};

// To the whole process, and waits until it was read.
void ask() {
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  for (sigset_t pending;; std::this_thread::sleep_for(kLook)) {
    ::sigpending(&pending);
    if (sigismember(&pending, SIGUSR1) == 0) return;
    ASSERT_FALSE(deadline.expired());
  }
}

bool is_asked(const StopSignal& signals) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  for (; !deadline.expired(); std::this_thread::sleep_for(kLook)) {
    if (signals.take_save_request()) return true;
  }
  return false;
}

// Any ask that came before has been looked at, since this one was.
void expect_no_other(const StopSignal& signals) {
  ask();
  EXPECT_TRUE(is_asked(signals));
  EXPECT_FALSE(signals.take_save_request());
}

TEST(StopSignal, EveryAskIsTakenOnce) {
  const StopSignal signals;
  for (int time = 0; time < 3; ++time) {
    ask();
    EXPECT_TRUE(is_asked(signals));
    EXPECT_FALSE(signals.take_save_request());
  }
}

TEST(StopSignal, ACopyThatHasComeIsAnsweredWithTheOtherRanksAsk) {
  const StopSignal signals(std::chrono::hours(1));
  ask();
  std::this_thread::sleep_for(20 * kLook);
  signals.answer_save_request();
  expect_no_other(signals);
}

TEST(StopSignal, ACopyThatComesLaterAsksForNothingMore) {
  const StopSignal signals(std::chrono::hours(1));
  signals.answer_save_request();
  ask();
  std::this_thread::sleep_for(20 * kLook);
  EXPECT_FALSE(signals.take_save_request());
  expect_no_other(signals);
}

TEST(StopSignal, AnAskLongAfterIsNoCopy) {
  const StopSignal signals(std::chrono::milliseconds(1));
  signals.answer_save_request();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ask();
  EXPECT_TRUE(is_asked(signals));
}

}  // namespace
}  // namespace dtrain
