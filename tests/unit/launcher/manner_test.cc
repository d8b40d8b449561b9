// How real processes are said to take a signal: a user's signal goes only to those that do not die of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "launcher/system/processes.h"

namespace dtrain::launcher {
namespace {

// A child that blocks SIGUSR1, and runs `script` in a shell or, where there is none, nothing. Ready once it
// has closed its end of a pipe, or, as a shell, has written a line to it.
class Child {
 public:
  explicit Child(const char* script) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      sigset_t user;
      sigemptyset(&user);
      sigaddset(&user, SIGUSR1);
      sigprocmask(SIG_BLOCK, &user, nullptr);
      ::dup2(ready[1], STDOUT_FILENO);
      ::close(ready[0]);
      ::close(ready[1]);
      if (script != nullptr) ::execl("/bin/sh", "sh", "-c", script, nullptr);
      ::close(STDOUT_FILENO);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte;
    EXPECT_GE(::read(ready[0], &byte, 1), 0);
    ::close(ready[0]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Manner manner() const {
    const auto process = find_process(pid_);
    EXPECT_TRUE(process.has_value());
    return process ? manner_of(*process, SIGUSR1) : Manner::ignores;
  }

 private:
  pid_t pid_ = -1;
};

// `until` runs no other program, so the shell stays as it is.
constexpr const char* kWithoutTrap = "echo up; until false; do :; done";
constexpr const char* kWithTrap = "trap : USR1; echo up; until false; do :; done";

TEST(Manner, AProgramReadsTheSignalThatItBlocks) { EXPECT_EQ(Child(nullptr).manner(), Manner::handles); }

// As one is for a moment whenever it starts a command.
TEST(Manner, AShellThatBlocksASignalDiesOfItLaterUnlessItHasATrap) {
  EXPECT_EQ(Child(kWithoutTrap).manner(), Manner::dies);
  EXPECT_EQ(Child(kWithTrap).manner(), Manner::waits);
}

}  // namespace
}  // namespace dtrain::launcher
