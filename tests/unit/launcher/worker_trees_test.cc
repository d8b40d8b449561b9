// Whom a signal goes to, in trees that the test makes up.
#include "launcher/subreaper/worker_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr pid_t kSubreaper = 10;

class WorkerTreesTest : public ::testing::Test {
 protected:
  // A process that leads no session is in its parent's, or in the one that is named.
  void add(pid_t pid, pid_t parent, Manner manner, pid_t session = 0) {
    const auto above =
        std::find_if(all_.begin(), all_.end(), [&](const Process& p) { return p.pid == parent; });
    Process process;
    process.pid = process.shown_as = pid;
    process.parent = parent;
    process.session = session > 0 ? session : above != all_.end() ? above->session : pid;
    process.group = process.session;
    process.state = 'S';
    process.started = 1;
    all_.push_back(process);
    manners_[pid] = manner;
  }
  // It has ended; the subreaper inherits its children.
  void remove(pid_t pid) {
    std::erase_if(all_, [&](const Process& process) { return process.pid == pid; });
    for (Process& process : all_) {
      if (process.parent == pid) process.parent = kSubreaper;
    }
  }

  std::vector<pid_t> asked(int signal) {
    trees_.look(all_);
    if (signal_ != signal) trees_.begin_ending(signal_ = signal);
    return pids(trees_.to_end());
  }
  std::vector<pid_t> asked_next() {
    trees_.look(all_);
    return pids(trees_.to_end());
  }
  std::vector<pid_t> told(int worker, int signal) {
    trees_.look(all_);
    return pids(trees_.to_tell(worker, signal));
  }
  std::vector<pid_t> left_by(int worker) {
    trees_.look(all_);
    std::vector<pid_t> found;
    for (const Process& process : trees_.started_by(worker)) found.push_back(process.pid);
    return found;
  }
  // Positive: it has been stopped; negative: it runs again.
  std::vector<pid_t> stops() {
    trees_.look(all_);
    std::vector<pid_t> found;
    for (const auto& stop : trees_.take_stops())
      found.push_back(stop.continued ? -stop.process.pid : stop.process.pid);
    return found;
  }
  void set_state(pid_t pid, char state) {
    for (Process& process : all_) {
      if (process.pid == pid) process.state = state;
    }
  }
  static std::vector<pid_t> pids(const std::vector<Addressed>& asked) {
    std::vector<pid_t> found;
    for (const Addressed& one : asked) found.push_back(one.process.pid);
    return found;
  }

  std::vector<Process> all_;
  std::map<pid_t, Manner> manners_;
  int signal_ = 0;
  WorkerTrees trees_{kSubreaper, 2, [this](const Process& process, int) { return manners_.at(process.pid); }};
};

TEST_F(WorkerTreesTest, ATrainerKeepsItsHelpersUntilItHasEnded) {
  trees_.on_start(0, 100);
  add(100, kSubreaper, Manner::handles);
  add(101, 100, Manner::dies);
  EXPECT_THAT(asked(SIGTERM), ElementsAre(100));
  manners_[100] = Manner::dies;  // handlers are often set once
  EXPECT_THAT(asked_next(), IsEmpty());
  trees_.on_end(0);
  remove(100);
  EXPECT_THAT(asked_next(), ElementsAre(101));
  EXPECT_THAT(asked_next(), IsEmpty()) << "once";
}

TEST_F(WorkerTreesTest, BelowAShellTheTrainerIsAskedAndItsHelpersAreNot) {
  for (const Manner shell : {Manner::dies, Manner::waits, Manner::ignores}) {
    all_.clear();
    signal_ = 0;
    trees_.on_start(0, 100);
    add(100, kSubreaper, shell);
    add(101, 100, Manner::handles);
    add(102, 101, Manner::dies);
    EXPECT_THAT(asked(SIGTERM), ElementsAre(100, 101));
    trees_.on_end(0);
    remove(100);
    EXPECT_THAT(asked_next(), IsEmpty()) << "the trainer still saves";
    remove(101);
    EXPECT_THAT(asked_next(), ElementsAre(102));
  }
}

// python3 train.py | tee log
TEST_F(WorkerTreesTest, WhatATrainerPrintsToOutlivesIt) {
  for (const Manner shell : {Manner::dies, Manner::waits, Manner::ignores}) {
    all_.clear();
    signal_ = 0;
    trees_.on_start(0, 100);
    add(100, kSubreaper, shell);
    add(101, 100, Manner::dies);  // tee, of a process substitution
    add(102, 100, Manner::dies);  // a wrapper
    add(103, 102, Manner::handles);
    add(104, 100, Manner::dies);  // tee, of a pipeline
    trees_.on_start(1, 200);
    add(200, kSubreaper, Manner::dies);
    add(201, 200, Manner::dies);
    EXPECT_THAT(asked(SIGTERM), ElementsAre(100, 102, 103, 200, 201)) << "the other worker has no trainer";
    trees_.on_end(0);
    remove(100);
    remove(102);
    EXPECT_THAT(asked_next(), IsEmpty()) << "the trainer still saves";
    remove(103);
    EXPECT_THAT(asked_next(), ElementsAre(101, 104));
    trees_.on_end(1);
  }
}

TEST_F(WorkerTreesTest, CommandsOfATrapAreLeftAlone) {
  for (const int signal : {SIGTERM, SIGINT}) {
    all_.clear();
    signal_ = 0;
    trees_.on_start(0, 100);
    add(100, kSubreaper, Manner::waits);
    add(101, 100, Manner::dies);
    EXPECT_THAT(asked(signal), ElementsAre(100, 101));
    remove(101);
    add(102, 100, Manner::dies);  // copies the checkpoint away
    add(103, 102, Manner::dies);
    add(104, kSubreaper, Manner::dies, 100);
    EXPECT_THAT(asked_next(), IsEmpty()) << "nor what the worker has orphaned";
    remove(102);
    remove(103);
    EXPECT_THAT(asked_next(), ElementsAre(104));
  }
}

TEST_F(WorkerTreesTest, WhatTheWorkerOrphanedWaitsForIt) {
  trees_.on_start(0, 100);
  add(100, kSubreaper, Manner::handles);
  add(101, kSubreaper, Manner::dies, 100);
  add(102, kSubreaper, Manner::dies, 102);  // a daemon
  EXPECT_THAT(asked(SIGTERM), ElementsAre(100));
  trees_.on_end(0);
  remove(100);
  EXPECT_THAT(asked_next(), ElementsAre(101, 102));
}

TEST_F(WorkerTreesTest, ADaemonIsAskedWhenTheLastWorkerHasEnded) {
  trees_.on_start(0, 100);
  trees_.on_start(1, 200);
  add(100, kSubreaper, Manner::dies);
  add(200, kSubreaper, Manner::handles);
  add(300, kSubreaper, Manner::dies, 300);
  EXPECT_THAT(asked(SIGTERM), ElementsAre(100, 200));
  trees_.on_end(0);
  remove(100);
  EXPECT_THAT(asked_next(), IsEmpty());
  trees_.on_end(1);
  remove(200);
  EXPECT_THAT(asked_next(), ElementsAre(300));
}

TEST_F(WorkerTreesTest, AKeysSignalReachesAllAtOnce) {
  trees_.on_start(0, 100);
  add(100, kSubreaper, Manner::handles);
  add(101, 100, Manner::dies);
  EXPECT_THAT(asked(SIGINT), ElementsAre(100, 101));
}

TEST_F(WorkerTreesTest, WhatIgnoresTheSignalIsTerminatedOnceItsWorkerHasEnded) {
  trees_.on_start(0, 100);
  add(100, kSubreaper, Manner::dies);
  trees_.look(all_);
  trees_.begin_ending(SIGINT);
  trees_.to_end();
  trees_.on_end(0);
  remove(100);
  add(101, kSubreaper, Manner::ignores, 100);
  trees_.look(all_);
  const std::vector<Addressed> asked = trees_.to_end();
  ASSERT_THAT(pids(asked), ElementsAre(101));
  EXPECT_EQ(asked.front().signal, SIGTERM);
}

TEST_F(WorkerTreesTest, NobodyIsToldWhoWouldDieOfIt) {
  trees_.on_start(0, 100);
  trees_.on_start(1, 200);
  add(100, kSubreaper, Manner::dies);
  add(101, 100, Manner::handles);
  add(102, 101, Manner::handles);
  add(103, 100, Manner::dies);
  add(200, kSubreaper, Manner::dies);
  EXPECT_THAT(told(0, SIGUSR1), ElementsAre(101)) << "nor a helper that inherited the handler";
  EXPECT_THAT(told(1, SIGUSR1), IsEmpty());
}

TEST_F(WorkerTreesTest, WhatMovedToAnotherSessionIsRememberedButNoBackgroundJob) {
  trees_.on_start(0, 100);
  add(100, kSubreaper, Manner::dies);
  add(101, 100, Manner::handles, 101);
  add(102, 100, Manner::dies);
  EXPECT_THAT(left_by(0), ElementsAre(101, 102));
  trees_.on_end(0);
  remove(100);
  add(103, kSubreaper, Manner::dies, 101);
  EXPECT_THAT(left_by(0), ElementsAre(101, 102, 103));
  ASSERT_EQ(trees_.in_background().size(), 1U);
  EXPECT_EQ(trees_.in_background().front().second.pid, 102);
  EXPECT_THAT(left_by(1), IsEmpty());
}

TEST_F(WorkerTreesTest, WhatStandsStillIsToldOnceAndItsTopAlone) {
  trees_.on_start(0, 100);
  add(100, kSubreaper, Manner::dies);
  add(101, 100, Manner::dies);
  add(102, 101, Manner::dies);
  add(103, 100, Manner::dies);
  EXPECT_THAT(stops(), IsEmpty());
  set_state(101, 'T');
  set_state(102, 'T');
  EXPECT_THAT(stops(), ElementsAre(101));
  EXPECT_THAT(stops(), IsEmpty());
  set_state(103, 'T');
  EXPECT_THAT(stops(), ElementsAre(103));
  set_state(101, 'S');
  EXPECT_THAT(stops(), ElementsAre(102, -101)) << "what is below is reported when its parent runs";
  remove(103);
  EXPECT_THAT(stops(), ElementsAre(-103));
  set_state(100, 'T');
  EXPECT_THAT(stops(), IsEmpty()) << "a first process's parent is told by the kernel";
}

TEST_F(WorkerTreesTest, ZombiesAreNotLeft) {
  trees_.on_start(0, 100);
  add(101, kSubreaper, Manner::dies, 100);
  all_.back().state = 'Z';
  trees_.on_end(0);
  EXPECT_THAT(left_by(0), IsEmpty());
  EXPECT_TRUE(trees_.in_background().empty());
  EXPECT_THAT(asked(SIGTERM), IsEmpty());
}

}  // namespace
}  // namespace dtrain::launcher
