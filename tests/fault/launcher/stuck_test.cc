// A process that workers left behind and that nobody here may end: the launcher names it, gives it a bounded
// time and not a core, and exits with the job's code. It runs as another user, as only root can arrange. The
// same code where the subreaper itself stands still.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "tests/fault/launcher/blocked.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNobody = "65534";

class Stuck : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can make a process that the launcher may not end";
    // setpriv with the set-user-ID bit: nobody's worker becomes root altogether, so that nobody cannot kill
    // it.
    fs::permissions(folder_.path(), fs::perms::all);
    fs::copy_file("/usr/bin/setpriv", become_root_);
    ASSERT_EQ(::chmod(become_root_.c_str(), 04755), 0);
    const RunResult allowed = run({"setpriv", "--reuid", kNobody, "--clear-groups", become_root_.string(),
                                   "--reuid=0", "sh", "-c", "grep ^Uid /proc/$$/status"});
    if (allowed.out.find("65534") != std::string::npos || allowed.exit_code != 0)
      GTEST_SKIP() << "the file system of " << folder_.path() << " takes no set-user-ID programs";
  }

  std::vector<std::string> as_nobody(const std::string& script) const {
    return {"/usr/bin/setpriv",
            "--reuid",
            kNobody,
            "--clear-groups",
            program("dtrain-launch"),
            "--nproc_per_node=2",
            "sh",
            "-c",
            script};
  }
  // Leaves one behind, and continues when it is root's: before that it could be ended.
  std::string leave_one() const {
    const std::string is_root = folder_.path() / "is-root";
    fs::remove(is_root);
    return "[ $RANK = 1 ] && { " + become_root_.string() + " --reuid=0 setsid sh -c 'touch " + is_root +
           "; exec sleep 300' & }; until [ -e " + is_root + " ]; do sleep 0.02; done; ";
  }

  TempDir folder_;
  fs::path become_root_ = folder_ / "become-root";
};

TEST_F(Stuck, ALeftoverIsNamedAndTheCodeIsTheJobs) {
  for (const int code : {0, 7}) {
    rusage before{}, after{};
    ::getrusage(RUSAGE_CHILDREN, &before);
    Running job(as_nobody(leave_one() + "sleep 0.5; exit " + std::to_string(code)),
                {{"TMPDIR", folder_.path()}});
    EXPECT_EQ(job.wait(seconds(30)), code) << job.err();
    EXPECT_THAT(job.err(), ContainsRegex("stuck: process [0-9]+ \\((sh|sleep), state [RS], of user 0\\)"));
    if (code == 0) {
      EXPECT_THAT(job.err(), Not(HasSubstr("ended 1 process")));
    }
    ::getrusage(RUSAGE_CHILDREN, &after);
    const double cpu = static_cast<double>(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
                                           after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                       1e-6 * static_cast<double>(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                                                  after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    EXPECT_LT(cpu, 1) << "seconds spent looking through /proc";
  }
}

TEST_F(Stuck, ALauncherThatIsKilledLeavesNoSubreaperSpinning) {
  Running job(as_nobody(leave_one() + "echo up; sleep 300"), {{"TMPDIR", folder_.path()}});
  ASSERT_TRUE(eventually([&] { return job.out() == "up\nup\n"; })) << job.err();
  job.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.marked().size() == 1; }, seconds(30)))
      << "only the one that cannot be ended is left, not " << job.marked().size();
}

// Who alone is told how workers end stands still, as in a system call that does not return.
TEST(SubreaperThatStandsStill, HowWorkersEndedIsKnownAllTheSame) {
  if (const auto why = Blocked::unavailable()) GTEST_SKIP() << *why;
  for (const int code : {0, 7}) {
    const TempDir folder;
    const std::string done = folder.path() / "done";
    Running job({program("dtrain-launch"), "--nproc_per_node=2", "sh", "-c",
                 "echo up; until [ -e " + done + " ]; do sleep 0.02; done; exit " + std::to_string(code)});
    ASSERT_TRUE(eventually([&] { return job.out() == "up\nup\n"; })) << job.err();
    const Blocked held(job.subreaper());
    write_file(done, "");
    EXPECT_EQ(job.wait(seconds(60)), code) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("the subreaper process is stuck"));
    if (code == 7) {
      EXPECT_THAT(job.err(), HasSubstr("exit code 7"));
    }
    EXPECT_TRUE(eventually([&] { return job.marked().empty(); })) << job.err();
  }
}

}  // namespace
}  // namespace dtrain::test
