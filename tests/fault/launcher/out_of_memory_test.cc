// A worker that the kernel's out-of-memory killer ends is reported as that, not only as signal 9. Uses a
// control group of its own with a small limit; needs root and a writable hierarchy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/process.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A memory-limited control group, version 1 or 2; empty path where none can be made.
class MemoryGroup {
 public:
  explicit MemoryGroup(long limit_bytes) {
    const fs::path one = "/sys/fs/cgroup/memory", two = "/sys/fs/cgroup";
    const bool first = fs::exists(one / "memory.limit_in_bytes");
    const fs::path group = (first ? one : two) / ("dtrain-test-" + std::to_string(::getpid()));
    std::error_code error;
    if (!fs::create_directory(group, error)) return;
    path_ = group;
    std::ofstream limit(group / (first ? "memory.limit_in_bytes" : "memory.max"));
    limit << limit_bytes << std::flush;
    usable_ = limit.good();
  }
  ~MemoryGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool usable() const { return usable_; }
  std::string members() const { return (path_ / "cgroup.procs").string(); }

 private:
  fs::path path_;
  bool usable_ = false;
};

TEST(OutOfMemory, IsNamedInTheReport) {
  const MemoryGroup group(64L << 20);
  if (!group.usable()) GTEST_SKIP() << "no control group with a memory limit can be made here (needs root)";
  // tail keeps the one endless line it reads.
  const RunResult result = run({"sh", "-c",
                                "echo $$ > '" + group.members() + "' && exec '" + program("dtrain-launch") +
                                    "' --nproc_per_node=2 sh -c 'if [ $RANK = 1 ]; then exec tail /dev/zero; "
                                    "fi; sleep 60'"},
                               limited_to(std::chrono::seconds(60)));
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
}

}  // namespace
}  // namespace dtrain::test
