// A subreaper that cannot begin: its launcher hears why, not only that it is gone.
#include "launcher/subreaper/subreaper.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/subreaper/protocol.h"

namespace dtrain::launcher {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr int kAsExpected = 0, kOtherEvent = 1, kSilence = 2, kNotLimited = 3;

// To be called in a process of its own: room for the guard, none for the subreaper.
int start_without_room() {
  sigset_t all;
  ::sigfillset(&all);
  constexpr rlimit kTwo{2, 2};
  // A user that has no other process.
  const auto user = static_cast<uid_t>(1'000'000'000 + ::getpid());
  if (::sigprocmask(SIG_BLOCK, &all, nullptr) != 0 || ::setrlimit(RLIMIT_NPROC, &kTwo) != 0 ||
      ::setuid(user) != 0)
    return kNotLimited;
  const Subreaper subreaper = start_subreaper({});
  pollfd wait{subreaper.socket.get(), POLLIN, 0};
  ::poll(&wait, 1, kPatienceMs);
  Event event{};
  if (::recv(subreaper.socket.get(), &event, sizeof event, 0) != sizeof event) return kSilence;
  return event.kind == Event::Kind::unable && event.value == EAGAIN ? kAsExpected : kOtherEvent;
}

TEST(Subreaper, SaysWhatKeepsItFromItsWork) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become a user without other processes";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(start_without_room());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kAsExpected);
}

}  // namespace
}  // namespace dtrain::launcher
