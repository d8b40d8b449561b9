// Processes of other ranks as one rank sees them: who has ended is known at once, the rest is left alone.
#include "collectives/peer_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/fd.h"

namespace dtrain {
namespace {

/// A process that does nothing until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ != 0) return;
    while (true) ::pause();
  }
  ~Sleeper() { kill(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  ProcessName name() const { return {pid_, ProcessName::own().pid_namespace}; }
  /// Returns when it has ended.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

TEST(PeerProcesses, TellWhoHasEnded) {
  if (const UniqueFd own(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U))); !own)
    GTEST_SKIP() << "skipped: this kernel has no descriptors of processes (pidfd_open, Linux 5.3)";
  Sleeper first, second;
  const PeerProcesses processes({ProcessName::own(), first.name(), second.name()});
  EXPECT_TRUE(processes.ended().empty());
  second.kill();
  EXPECT_EQ(processes.ended(), std::vector<int>{2});
  first.kill();
  EXPECT_EQ(processes.ended(), (std::vector<int>{1, 2}));
}

TEST(PeerProcesses, OfAnotherNamespaceOrMachineAreNotLookedAt) {
  Sleeper sleeper;
  ProcessName elsewhere = sleeper.name();
  ++elsewhere.pid_namespace;
  const PeerProcesses processes({elsewhere, ProcessName{}});
  sleeper.kill();
  EXPECT_TRUE(processes.ended().empty());
}

}  // namespace
}  // namespace dtrain
