// The rules of ending a group, on a clock the test holds.
#include "launcher/process/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Command::Kind;

constexpr int exited(int code) { return code << 8; }
constexpr int killed(int signal) { return signal; }

class SupervisorTest : public ::testing::Test {
 protected:
  Supervisor make(int workers, bool own_codes = false) {
    return Supervisor(workers, {seconds(5), seconds(30), seconds(60), own_codes});
  }
  TimePoint after(Duration d) const { return start_ + d; }
  TimePoint start_{seconds(100)};
};

TEST_F(SupervisorTest, AllWell) {
  Supervisor s = make(2);
  EXPECT_EQ(s.on_exit(1, exited(0), start_).kind, Kind::none);
  EXPECT_FALSE(s.deadline());
  EXPECT_EQ(s.on_exit(0, exited(0), after(seconds(1000))).kind, Kind::none);
  EXPECT_EQ(s.running(), 0);
  EXPECT_EQ(s.result().exit_code, 0);
  EXPECT_FALSE(s.result().first_failed);
}

TEST_F(SupervisorTest, FirstFailureEndsTheOthersAndGivesTheCode) {
  Supervisor s = make(3);
  const Command action = s.on_exit(2, exited(7), start_);
  EXPECT_EQ(action.kind, Kind::signal);
  EXPECT_EQ(action.value, SIGTERM);
  EXPECT_EQ(s.deadline(), after(seconds(5)));
  EXPECT_EQ(s.on_exit(0, killed(SIGTERM), after(milliseconds(3))).kind, Kind::none);
  EXPECT_EQ(s.on_exit(1, exited(9), after(milliseconds(4))).kind, Kind::none);
  EXPECT_EQ(s.deadline(), after(seconds(5))) << "for what they have started";
  EXPECT_EQ(s.result().first_failed, 2);
  EXPECT_EQ(s.result().exit_code, 7);
}

TEST_F(SupervisorTest, AStopFromOtherNodesEndsWorkersWithoutBlamingThem) {
  Supervisor s = make(2);
  EXPECT_EQ(s.on_stop(start_, seconds(5)).value, SIGTERM);
  EXPECT_EQ(s.on_stop(after(milliseconds(1)), seconds(5)).kind, Kind::none) << "once is enough";
  EXPECT_EQ(s.deadline(), after(seconds(5)));
  s.on_exit(0, killed(SIGTERM), after(milliseconds(2)));
  EXPECT_FALSE(s.root_cause());
  EXPECT_EQ(s.on_time(after(seconds(5))).kind, Kind::kill_all);
  s.on_exit(1, killed(SIGKILL), after(seconds(5)));
  EXPECT_FALSE(s.result().first_failed);
  EXPECT_NE(s.result().exit_code, 0);
}

TEST_F(SupervisorTest, AKillFromOtherNodesHasNoGrace) {
  Supervisor s = make(2);
  s.on_stop(start_, seconds(5));
  EXPECT_EQ(s.on_kill(after(milliseconds(1))).kind, Kind::kill_all);
  EXPECT_EQ(s.on_kill(after(milliseconds(2))).kind, Kind::none);
  s.on_exit(0, killed(SIGKILL), after(milliseconds(3)));
  s.on_exit(1, killed(SIGKILL), after(milliseconds(3)));
  EXPECT_EQ(s.on_stop(after(milliseconds(4)), seconds(5)).kind, Kind::none) << "nobody is left";
}

TEST_F(SupervisorTest, OnlyOurOwnProgramsPeerErrorIsAConsequence) {
  Supervisor ours = make(1, true), foreign = make(1);
  ours.on_exit(0, exited(4), start_);
  foreign.on_exit(0, exited(4), start_);
  EXPECT_TRUE(ours.is_consequence(0));
  EXPECT_FALSE(foreign.is_consequence(0));
}

TEST_F(SupervisorTest, KillsAfterTheGraceAndGivesUpMuchLater) {
  Supervisor s = make(2);
  s.on_exit(0, killed(SIGSEGV), start_);
  EXPECT_EQ(s.on_time(after(milliseconds(4999))).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(5))).kind, Kind::kill_all);
  EXPECT_EQ(s.on_time(after(seconds(6))).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(8))).kind, Kind::replace_subreaper) << "the subreaper may be stopped";
  EXPECT_EQ(s.on_time(after(seconds(14))).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(15))).kind, Kind::give_up);
  EXPECT_EQ(s.result().exit_code, 128 + SIGSEGV);
}

TEST_F(SupervisorTest, ACheckpointIsWaitedForThenTheWorkerMayEnd) {
  Supervisor s = make(2);
  s.on_exit(0, killed(SIGSEGV), start_);
  EXPECT_EQ(s.on_time(after(seconds(5)), true).kind, Kind::await_saving);
  EXPECT_EQ(s.on_time(after(seconds(30)), true).kind, Kind::none) << "told once";
  EXPECT_EQ(s.on_time(after(seconds(40)), false).kind, Kind::none) << "it has saved and ends";
  EXPECT_EQ(s.on_time(after(milliseconds(41900)), false).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(42)), false).kind, Kind::kill_all);
}

TEST_F(SupervisorTest, ACheckpointThatHangsIsNotWaitedForForEver) {
  Supervisor s = make(2);
  s.on_exit(0, killed(SIGSEGV), start_);
  EXPECT_EQ(s.on_time(after(seconds(5)), true).kind, Kind::await_saving);
  EXPECT_EQ(s.on_time(after(seconds(64)), true).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(65)), true).kind, Kind::kill_all);
}

TEST_F(SupervisorTest, TheGraceGoesOnUntilWhatTheWorkersStartedHasEnded) {
  Supervisor s = make(1);
  s.on_signal(SIGTERM, start_);
  s.on_exit(0, killed(SIGTERM), after(milliseconds(1)));
  EXPECT_EQ(s.on_leftovers(1, after(milliseconds(2))).kind, Kind::none) << "they have been asked";
  EXPECT_EQ(s.on_time(after(seconds(29))).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(30)), true).kind, Kind::await_saving);
  EXPECT_EQ(s.on_time(after(seconds(90)), true).kind, Kind::kill_all);
  EXPECT_EQ(s.on_time(after(seconds(94))).kind, Kind::none) << "the subreaper names what is stuck";
  EXPECT_EQ(s.on_time(after(seconds(102))).kind, Kind::replace_subreaper);
  EXPECT_EQ(s.result().exit_code, 128 + SIGTERM);
}

TEST_F(SupervisorTest, WhatRunsOnInTheBackgroundOfAGoodJobGetsItsTime) {
  Supervisor s = make(1);
  s.on_exit(0, exited(0), start_);
  EXPECT_EQ(s.on_leftovers(2, start_).kind, Kind::await_leftovers);
  EXPECT_EQ(s.on_time(after(seconds(29))).kind, Kind::none);
  const Command action = s.on_time(after(seconds(30)));
  EXPECT_EQ(action.kind, Kind::signal);
  EXPECT_EQ(action.value, SIGTERM);
  EXPECT_EQ(s.on_time(after(seconds(34))).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(35))).kind, Kind::kill_all);
  EXPECT_EQ(s.result().exit_code, 0);
}

TEST_F(SupervisorTest, DaemonsAndWhatAFailedJobLeavesAreAskedToEndAtOnce) {
  Supervisor daemons = make(1), failed = make(1), both = make(1);
  daemons.on_exit(0, exited(0), start_);
  EXPECT_EQ(daemons.on_leftovers(0, start_).value, SIGTERM);
  EXPECT_EQ(daemons.deadline(), after(seconds(5)));
  failed.on_exit(0, exited(1), start_);
  EXPECT_EQ(failed.on_leftovers(1, start_).value, SIGTERM);
  EXPECT_EQ(failed.result().exit_code, 1);
  both.on_exit(0, exited(0), start_);
  both.on_leftovers(1, start_);
  EXPECT_EQ(both.on_leftovers(0, after(seconds(1))).value, SIGTERM) << "the background job has ended";
}

TEST_F(SupervisorTest, ASignalReachesWhatRunsOnAndChangesNoGoodCode) {
  Supervisor s = make(1);
  s.on_exit(0, exited(0), start_);
  EXPECT_EQ(s.on_signal(SIGINT, start_).kind, Kind::none) << "nothing is known to be left";
  s.on_leftovers(1, after(seconds(1)));
  EXPECT_EQ(s.on_signal(SIGINT, after(seconds(2))).value, SIGINT);
  EXPECT_EQ(s.on_signal(SIGINT, after(seconds(3))).kind, Kind::kill_all);
  EXPECT_EQ(s.result().exit_code, 0);
}

TEST_F(SupervisorTest, AStopFromOtherNodesReachesWhatRunsOn) {
  Supervisor s = make(1);
  s.on_exit(0, exited(0), start_);
  s.on_leftovers(1, start_);
  EXPECT_EQ(s.on_stop(after(seconds(1)), seconds(5)).value, SIGTERM);
  EXPECT_EQ(s.on_kill(after(seconds(2))).kind, Kind::kill_all);
}

TEST_F(SupervisorTest, AStopInAHurryWaitsForNothingButACheckpoint) {
  Supervisor idle = make(2), saving = make(2);
  idle.on_stop(start_, seconds(0));
  saving.on_stop(start_, seconds(0));
  EXPECT_EQ(idle.on_time(start_, false).kind, Kind::kill_all);
  EXPECT_EQ(saving.on_time(start_, true).kind, Kind::await_saving);
  EXPECT_EQ(saving.on_kill(after(seconds(1))).kind, Kind::kill_all) << "the lease is gone: no more writing";
}

TEST_F(SupervisorTest, SignalIsForwardedOnceAndTheSecondKills) {
  Supervisor s = make(2);
  const Command first = s.on_signal(SIGINT, start_);
  EXPECT_EQ(first.kind, Kind::signal);
  EXPECT_EQ(first.value, SIGINT);
  EXPECT_EQ(s.on_signal(SIGINT, after(milliseconds(10))).kind, Kind::none) << "an echo of the first";
  EXPECT_EQ(s.on_signal(SIGINT, after(milliseconds(200))).kind, Kind::kill_all);
  s.on_exit(0, killed(SIGKILL), after(milliseconds(201)));
  s.on_exit(1, killed(SIGKILL), after(milliseconds(201)));
  EXPECT_EQ(s.result().exit_code, 128 + SIGINT);
  EXPECT_FALSE(s.result().first_failed);
  EXPECT_EQ(s.result().signal, SIGINT);
}

TEST_F(SupervisorTest, WorkersDecideTheCodeAfterASignal) {
  const auto end = [&](int first, int second) {
    Supervisor s = make(2);
    s.on_signal(SIGTERM, start_);
    s.on_exit(0, first, after(milliseconds(1)));
    s.on_exit(1, second, after(milliseconds(2)));
    return s.result().exit_code;
  };
  EXPECT_EQ(end(killed(SIGTERM), killed(SIGTERM)), 128 + SIGTERM);
  EXPECT_EQ(end(exited(143), exited(0)), 128 + SIGTERM);
  EXPECT_EQ(end(exited(75), exited(75)), 75);
  EXPECT_EQ(end(exited(75), exited(0)), 75);
  EXPECT_EQ(end(exited(0), exited(0)), 0);
  EXPECT_EQ(end(exited(9), killed(SIGTERM)), 9);
}

TEST_F(SupervisorTest, GraceAfterASignalIsItsOwn) {
  Supervisor s = make(1);
  s.on_signal(SIGTERM, start_);
  EXPECT_EQ(s.on_time(after(seconds(29))).kind, Kind::none);
  EXPECT_EQ(s.on_time(after(seconds(30))).kind, Kind::kill_all);
  s.on_exit(0, killed(SIGKILL), after(seconds(30)));
  EXPECT_EQ(s.result().exit_code, 128 + SIGTERM);
}

TEST_F(SupervisorTest, FailureAfterASignalShortensTheGrace) {
  Supervisor s = make(2);
  s.on_signal(SIGTERM, start_);
  EXPECT_EQ(s.on_exit(0, killed(SIGSEGV), after(seconds(1))).kind, Kind::signal);
  EXPECT_EQ(s.deadline(), after(seconds(6)));
}

TEST_F(SupervisorTest, WorkersEndingByTheForwardedSignalLeaveTheOthersTheirTime) {
  Supervisor s = make(2);
  s.on_signal(SIGTERM, start_);
  EXPECT_EQ(s.on_exit(0, killed(SIGTERM), after(seconds(1))).kind, Kind::none);
  EXPECT_EQ(s.deadline(), after(seconds(30)));
}

TEST_F(SupervisorTest, RequeueIsOrderlyForOurProgramOnly) {
  Supervisor ours = make(2, true);
  EXPECT_EQ(ours.on_exit(0, exited(75), start_).kind, Kind::none);
  ours.on_exit(1, exited(75), after(seconds(9)));
  EXPECT_EQ(ours.result().exit_code, 75);
  EXPECT_FALSE(ours.result().first_failed);
  Supervisor foreign = make(2);
  EXPECT_EQ(foreign.on_exit(0, exited(75), start_).kind, Kind::signal);
  foreign.on_exit(1, killed(SIGTERM), start_);
  EXPECT_EQ(foreign.result().first_failed, 0);
  EXPECT_EQ(foreign.result().exit_code, 75);
}

TEST_F(SupervisorTest, PeerErrorIsAConsequenceOfTheDeathThatFollowsIt) {
  const auto cause = [&](int second_status, Duration later) {
    Supervisor s = make(2, true);
    s.on_exit(0, exited(4), start_);
    s.on_exit(1, second_status, after(later));
    return s.result();
  };
  EXPECT_EQ(cause(killed(SIGSEGV), milliseconds(20)).first_failed, 1);
  EXPECT_EQ(cause(killed(SIGSEGV), milliseconds(20)).exit_code, 128 + SIGSEGV);
  EXPECT_EQ(cause(killed(SIGKILL), milliseconds(20)).first_failed, 1) << "nobody here has sent that yet";
  EXPECT_EQ(cause(killed(SIGKILL), milliseconds(20)).exit_code, 128 + SIGKILL);
  EXPECT_EQ(cause(killed(SIGSEGV), seconds(3)).first_failed, 0);
  EXPECT_EQ(cause(killed(SIGTERM), milliseconds(20)).first_failed, 0) << "the launcher did that itself";
  EXPECT_EQ(cause(exited(4), milliseconds(20)).first_failed, 0);
}

TEST_F(SupervisorTest, WhatTheLauncherKillsIsNoCause) {
  Supervisor s = make(2, true);
  s.on_exit(0, exited(4), start_);
  EXPECT_EQ(s.on_signal(SIGINT, after(milliseconds(1))).kind, Kind::kill_all);
  s.on_exit(1, killed(SIGKILL), after(milliseconds(2)));
  EXPECT_EQ(s.result().first_failed, 0);
}

TEST_F(SupervisorTest, CtrlCWhileEndingKillsAtOnce) {
  Supervisor s = make(2);
  s.on_exit(0, exited(1), start_);
  EXPECT_EQ(s.on_signal(SIGINT, after(milliseconds(1))).kind, Kind::kill_all);
}

TEST_F(SupervisorTest, AnEndReportedTwiceCountsOnce) {
  Supervisor s = make(2);
  s.on_exit(0, exited(0), start_);
  s.on_exit(0, exited(3), start_);
  EXPECT_EQ(s.running(), 1);
}

// Three workers and a parameter server, the last.
Supervisor beside_servers(int returns = 0) {
  return Supervisor(4, {seconds(5), seconds(30), seconds(60), true, 1, returns});
}

TEST_F(SupervisorTest, BesideServersTheOthersGoOnWithoutAWorkerThatIsKilled) {
  Supervisor s = beside_servers();
  EXPECT_EQ(s.on_exit(1, killed(SIGKILL), start_).kind, Kind::none);
  EXPECT_TRUE(s.is_lost(1));
  EXPECT_FALSE(s.return_due());
  EXPECT_EQ(s.on_exit(0, exited(0), after(seconds(9))).kind, Kind::none);
  EXPECT_EQ(s.on_exit(2, exited(0), after(seconds(10))).kind, Kind::signal) << "the server is to end";
  s.on_exit(3, exited(0), after(seconds(10)));
  EXPECT_EQ(s.result().exit_code, 0);
  EXPECT_FALSE(s.result().first_failed);
}

TEST_F(SupervisorTest, BesideServersAWorkerThatTheOthersNeedEndsTheJob) {
  Supervisor s = beside_servers(1);
  EXPECT_EQ(s.on_exit(1, killed(SIGKILL), start_, true).kind, Kind::signal);
  EXPECT_FALSE(s.is_lost(1));
  EXPECT_FALSE(s.return_due());
  for (const int other : {0, 2, 3}) s.on_exit(other, killed(SIGTERM), after(milliseconds(100)));
  EXPECT_EQ(s.result().first_failed, 1);
  EXPECT_EQ(s.result().exit_code, 128 + SIGKILL);
}

TEST_F(SupervisorTest, AKilledWorkerIsTheCauseWhereOthersFailForIt) {
  Supervisor s = beside_servers(1);
  s.on_exit(1, killed(SIGKILL), start_);
  EXPECT_EQ(s.on_exit(0, exited(4), after(milliseconds(600))).kind, Kind::signal);
  EXPECT_FALSE(s.return_due()) << "all are to begin again";
  s.on_exit(2, exited(4), after(milliseconds(700)));
  s.on_exit(3, exited(4), after(milliseconds(800)));
  EXPECT_EQ(s.result().first_failed, 1);
  EXPECT_EQ(s.result().exit_code, 128 + SIGKILL);
}

TEST_F(SupervisorTest, AServerThatIsKilledLongAfterAWorkerIsTheCause) {
  Supervisor s = beside_servers();
  s.on_exit(1, killed(SIGKILL), start_);
  EXPECT_EQ(s.on_exit(3, killed(SIGSEGV), after(seconds(60))).kind, Kind::signal);
  s.on_exit(0, exited(4), after(seconds(60)));
  s.on_exit(2, exited(4), after(seconds(60)));
  EXPECT_EQ(s.result().first_failed, 3);
}

TEST_F(SupervisorTest, ALostWorkerIsStartedAgainAsOftenAsAllowed) {
  Supervisor s = beside_servers(1);
  s.on_exit(1, killed(SIGKILL), start_);
  EXPECT_EQ(s.return_due(), after(Supervisor::kReturn));
  EXPECT_FALSE(s.take_return(after(milliseconds(100))));
  EXPECT_EQ(s.take_return(after(Supervisor::kReturn)), 1);
  EXPECT_FALSE(s.take_return(after(Supervisor::kReturn))) << "once";
  s.on_return(1);
  EXPECT_FALSE(s.is_lost(1));
  EXPECT_EQ(s.running(), 4);
  s.on_exit(1, killed(SIGKILL), after(seconds(10)));
  EXPECT_TRUE(s.is_lost(1));
  EXPECT_FALSE(s.return_due());
}

TEST_F(SupervisorTest, TheLastWorkerIsMissedAndSoIsOneThatFailsByItself) {
  Supervisor last = Supervisor(2, {seconds(5), seconds(30), seconds(60), true, 1});
  EXPECT_EQ(last.on_exit(0, killed(SIGKILL), start_).kind, Kind::signal);
  EXPECT_EQ(last.result().first_failed, 0);
  Supervisor failed = beside_servers();
  EXPECT_EQ(failed.on_exit(1, exited(2), start_).kind, Kind::signal);
}

}  // namespace
}  // namespace dtrain::launcher
