// Who is below a process, and that a process without children does not look through /proc for it.
#include "launcher/system/descendants.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

/// Calls of read() by this process so far; 0 where the kernel does not count them.
long reads() {
  std::istringstream text(test::read_file("/proc/self/io"));
  std::string name;
  for (long value = 0; text >> name >> value;) {
    if (name == "syscr:") return value;
  }
  return 0;
}

TEST(Descendants, OfAProcessWithoutChildrenTakeNoLookAtProc) {
  if (reads() == 0) GTEST_SKIP() << "this kernel does not count a process's reads";
  const long first = reads(), each = reads() - first, before = reads();
  EXPECT_TRUE(descendants().empty());
  EXPECT_EQ(reads() - before, each) << "/proc was read";
}

TEST(Descendants, AreSeenUntilTheyAreReaped) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_EQ(descendants().size(), 1U);
  EXPECT_EQ(descendants()[0].pid, child);
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(descendants().size(), 1U) << "it has ended, and waits to be reaped";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(descendants().empty());
}

TEST(Children, AreCountedWithThoseThatWaitToBeReapedAndWithOrphans) {
  if (!child_count()) GTEST_SKIP() << "this kernel keeps no list of a process's children";
  EXPECT_EQ(child_count(), 0U);
  become_subreaper();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::fork() == 0) ::pause();
    ::_exit(0);
  }
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(child_count(), 2U) << "one has ended, the other is its orphan";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(child_count(), 1U);
  const std::vector<Process> orphans = descendants();
  ASSERT_EQ(orphans.size(), 1U);
  ASSERT_TRUE(signal_process(orphans[0], SIGKILL));
  ASSERT_EQ(::waitpid(orphans[0].pid, nullptr, 0), orphans[0].pid);
  EXPECT_EQ(child_count(), 0U);
}

}  // namespace
}  // namespace dtrain::launcher
