// What workers say of themselves in shared memory, and launchers read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/files/worker_status.h"
#include "tests/support/process.h"

namespace dtrain {
namespace {

Environment variable_of(const StatusPage& page, int worker) {
  return {{kStatusVariable, StatusPage::variable(page.fd(), worker)}};
}

void report(StatusReporter& reporter, std::int64_t step) {
  reporter.update([step](WorkerStatus& status) {
    status.step = status.total_steps = status.epoch = step;
    status.loss = static_cast<double>(step);
  });
}

/// All of one report().
void expect_whole(const WorkerStatus& read) {
  EXPECT_EQ(read.step, read.total_steps);
  EXPECT_EQ(read.step, read.epoch);
  EXPECT_EQ(static_cast<double>(read.step), read.loss);
}

TEST(WorkerStatus, IsReadAsItWasWrittenInAnotherProcess) {
  const StatusPage page(3);
  EXPECT_FALSE(page.slot(1).read());
  const std::vector<int> codes = test::run_ranks(1, [&](int) {
    StatusReporter reporter(StatusSlot::from(variable_of(page, 1)));
    reporter.update([](WorkerStatus& status) {
      status = {.state = WorkerState::evaluating,
                .saving = true,
                .step = 1,
                .total_steps = 2,
                .epoch = 3,
                .loss = 4.5,
                .samples_per_second = 5.5,
                .step_seconds = 6.5,
                .own_seconds = 7.5,
                .checkpoints = 8,
                .checkpoint_step = 9,
                .checkpoint_seconds = 10.5,
                .slowness = {StragglerPhase::data, 1.5}};
    });
  });
  EXPECT_EQ(codes, std::vector<int>{0});
  const auto read = page.slot(1).read();
  ASSERT_TRUE(read);
  EXPECT_EQ(name_of(read->state), "evaluating");
  EXPECT_TRUE(read->saving);
  EXPECT_EQ(read->step, 1);
  EXPECT_EQ(read->total_steps, 2);
  EXPECT_EQ(read->epoch, 3);
  EXPECT_EQ(read->loss, 4.5);
  EXPECT_EQ(read->samples_per_second, 5.5);
  EXPECT_EQ(read->step_seconds, 6.5);
  EXPECT_EQ(read->own_seconds, 7.5);
  EXPECT_EQ(read->checkpoints, 8);
  EXPECT_EQ(read->checkpoint_step, 9);
  EXPECT_EQ(read->checkpoint_seconds, 10.5);
  EXPECT_EQ(read->slowness, (Slowness{StragglerPhase::data, 1.5}));
  EXPECT_EQ(name_of(read->slowness.phase), "data");
  EXPECT_FALSE(page.slot(0).read());
  EXPECT_FALSE(page.slot(2).read());
}

TEST(WorkerStatus, AReaderNeverSeesHalfOfAWrite) {
  const StatusPage page(1);
  std::atomic<bool> end{false};
  std::jthread writing([&] {
    StatusReporter reporter(StatusSlot::from(variable_of(page, 0)));
    for (std::int64_t step = 1; !end; ++step) report(reporter, step);
  });
  std::int64_t last = 0;
  for (int i = 0; i < 100'000 && !HasFailure(); ++i) {
    const auto read = page.slot(0).read();
    if (!read || read->step == 0) continue;
    expect_whole(*read);
    EXPECT_GE(read->step, last);
    last = read->step;
  }
  end = true;
}

// Wherever a write is held up, what was written before it is there.
TEST(WorkerStatus, AWriterThatIsStoppedLeavesTheStatusWhole) {
  const StatusPage page(1);
  const pid_t child = ::fork();
  if (child == 0) {
    StatusReporter reporter(StatusSlot::from(variable_of(page, 0)));
    for (std::int64_t step = 1;; ++step) report(reporter, step);
  }
  ASSERT_GT(child, 0);
  std::int64_t last = 0;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100 + 7 * i));
    EXPECT_EQ(::kill(child, SIGSTOP), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
    const auto read = page.slot(0).read();
    EXPECT_EQ(::kill(child, SIGCONT), 0);
    if (!read || read->step == 0) continue;  // not begun
    expect_whole(*read);
    EXPECT_GE(read->step, last);
    last = read->step;
  }
  EXPECT_GT(last, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(WorkerStatus, WhatIsNoStatusIsNoneAndCannotHurtTheReader) {
  const StatusPage page(1);
  // A worker cannot cut the memory from under the launcher, but write what it likes.
  EXPECT_NE(::ftruncate(page.fd(), 0), 0);
  void* memory = ::mmap(nullptr, 256, PROT_READ | PROT_WRITE, MAP_SHARED, page.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::memset(memory, 0xff, 256);
  EXPECT_FALSE(page.slot(0).read());
  ::munmap(memory, 256);
}

TEST(WorkerStatus, AVariableThatNamesNoSlotIsRefused) {
  EXPECT_FALSE(StatusSlot::from({}).read());
  StatusSlot().write({});
  for (const char* text :
       {"7", "7:", ":0", "x:0", "7:0", "7:0:", "7:0:5", "7:-1:5:1", "7:99999999:5:1", "7:0:5:1:1"})
    EXPECT_THROW(StatusSlot::from({{kStatusVariable, text}}), UsageError) << text;
}

// A process that a script has started does not have the launcher's descriptor, and may have another under its
// number.
TEST(WorkerStatus, ADescriptorThatWasNotHandedDownIsOpenedAtTheLauncher) {
  const StatusPage page(1), other(1);
  const std::string variable = StatusPage::variable(page.fd(), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(other.fd(), page.fd());
    StatusSlot::from({{kStatusVariable, variable}}).write({.step = 7});
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(page.slot(0).read());
  EXPECT_EQ(page.slot(0).read()->step, 7);
  EXPECT_FALSE(other.slot(0).read());
}

TEST(WorkerStatus, MemoryThatCannotBeReachedIsNoError) {
  const StatusPage page(1);
  std::string text = StatusPage::variable(page.fd(), 0);
  text.replace(0, text.find(':'), "977");  // neither here nor there
  StatusSlot::from({{kStatusVariable, text}}).write({});
  EXPECT_FALSE(page.slot(0).read());
}

}  // namespace
}  // namespace dtrain
