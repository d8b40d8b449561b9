// kill -9 at random moments of a process that does nothing but checkpoint: every checkpoint that has a name
// must load, and none that was reported durable may be lost.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

using test::MemoryLog;
using test::SampleSnapshot;

constexpr std::size_t kElems = 20'000;

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

void report(int pipe, std::int64_t step) {
  check(Sys{::write(pipe, &step, sizeof step)}, "write");  // 8 bytes to a pipe: whole or not at all
}

// Resumes from the newest checkpoint, without end; each step is saved, every third one twice.
[[noreturn]] void checkpoint_in_a_loop(const std::filesystem::path& folder, bool beside, int pipe) {
  MemoryLog log;
  CheckpointStore store(folder, 3, log);
  store.begin_writing(0, patience());
  const auto newest = store.latest();
  std::int64_t step = newest ? newest->state.step : 0;
  CheckpointSaver saver(&store, log);
  while (true) {
    ++step;
    const SampleSnapshot sample(step, kElems);
    for (int time = 0; time < (step % 3 == 0 ? 2 : 1); ++time) {
      if (beside) {
        saver.save(sample.get(), patience());  // returns while it is being written
        if (const auto durable = saver.durable_step()) report(pipe, *durable);
      } else {
        store.save(sample.get());
        report(pipe, step);
      }
    }
  }
}

class Child {
 public:
  Child(const std::filesystem::path& folder, bool beside) {
    int ends[2];
    check(Sys{::pipe(ends)}, "pipe");
    pid_ = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      try {
        checkpoint_in_a_loop(folder, beside, ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "writer: %s\n", error.what());
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    reports_.reset(ends[0]);
  }

  // Until the first report, or until the writer has ended by itself.
  void wait_for_report() {
    pollfd readable{reports_.get(), POLLIN, 0};
    ::poll(&readable, 1, 60'000);
  }

  /// Kills the child; returns the newest step it had reported (0: none). Fails the test when it had died
  /// already.
  std::int64_t kill() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    std::int64_t newest = 0, step = 0;
    while (::read(reports_.get(), &step, sizeof step) == static_cast<ssize_t>(sizeof step)) newest = step;
    return newest;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd reports_;
};

void expect_whole(const Checkpoint& checkpoint) {
  const auto step = static_cast<float>(checkpoint.state.step);
  const auto weight = test::values<float>(checkpoint.model, "conv1.weight");
  EXPECT_EQ(weight[0], step);
  EXPECT_EQ(weight[kElems - 1], step + static_cast<float>(kElems - 1));
  EXPECT_EQ(test::values<std::int64_t>(checkpoint.optimizer, "step")[0], checkpoint.state.step);
}

bool has_leftover(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.front() == '.' && name != ".lock") return true;
  }
  return false;
}

int rounds() {
  const char* text = std::getenv("DTRAIN_FAULT_ROUNDS");
  return text != nullptr ? std::atoi(text) : 25;
}

TEST(CheckpointKill, NothingTornNothingLost) {
  const test::TempDir folder;
  const auto checkpoints = folder / "checkpoints";
  std::mt19937 random(20260131);
  std::int64_t durable = 0;
  int interrupted = 0;
  for (int round = 0; round < rounds(); ++round) {
    Child child(checkpoints, round % 2 == 0);
    if (round % 4 != 3) child.wait_for_report();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    durable = std::max(durable, child.kill());

    MemoryLog log;
    const CheckpointStore store(checkpoints, 3, log);
    for (const auto& entry : store.list()) {
      ASSERT_NO_THROW(expect_whole(store.load(entry.path))) << "round " << round << ": " << entry.path;
    }
    const auto newest = store.latest();
    ASSERT_TRUE(newest || durable == 0) << "round " << round;
    if (newest) {
      ASSERT_GE(newest->state.step, durable) << "round " << round;
    }
    EXPECT_EQ(log.warnings(), "");
    if (std::filesystem::exists(checkpoints) && has_leftover(checkpoints)) ++interrupted;
  }
  std::printf("%d kills, %d of them in the middle of a save, newest checkpoint %ld, 0 unreadable\n", rounds(),
              interrupted, static_cast<long>(durable));
  EXPECT_GT(durable, 0);
  EXPECT_GT(interrupted, 0) << "no kill hit a save: the test proves nothing";
}

}  // namespace
}  // namespace dtrain
