// A log file behind which nobody reads: what is queued, when it counts as stalled, what is lost. Held clock.
#include "launcher/output/log_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/support/manual_clock.h"
#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// The time of a test that waits for the thread.
const Deadline kPatience = Deadline::after(seconds(60));

TEST(LogFile, WritesAllInOrder) {
  const test::TempDir folder;
  LogFile file(open_log_file(folder / "a/b.log"), "log");
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    file.append(std::to_string(i) + "\n");
    expected += std::to_string(i) + "\n";
  }
  EXPECT_TRUE(file.settle(kPatience));
  file.give_up();
  EXPECT_EQ(test::read_file(folder / "a/b.log"), expected);
  EXPECT_FALSE(file.take_news());
}

class Fifo : public ::testing::Test {
 protected:
  Fifo() { EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0); }

  // With nothing to read it, and no room.
  UniqueFd open_full() const {
    UniqueFd fd = open_log_file(path_);
    const std::string bytes(4096, 'f');
    while (::write(fd.get(), bytes.data(), bytes.size()) > 0) {
    }
    return fd;
  }

  test::TempDir folder_;
  std::string path_ = folder_ / "fifo";
  test::ManualClock clock_;
};

TEST_F(Fifo, OpensWithoutAReader) { EXPECT_TRUE(open_log_file(path_)); }

TEST_F(Fifo, HoldsTheWorkerBackUntilItCountsAsStalled) {
  LogFile file(open_full(), "log", clock_);
  file.append(std::string(2 << 20, 'x'));
  EXPECT_TRUE(file.full());
  clock_.advance(LogFile::kStall);
  EXPECT_FALSE(file.full()) << "the worker is not to wait forever";
  file.append("more");
  EXPECT_THAT(file.take_news().value_or(""),
              HasSubstr("log cannot be written to: it accepts no more output"));
  file.append("more");
  EXPECT_FALSE(file.take_news()) << "said once";
}

TEST_F(Fifo, TakesOutputAgainWhenSomebodyReads) {
  LogFile file(open_full(), "log", clock_);
  file.append(std::string(2 << 20, 'x'));
  clock_.advance(LogFile::kStall);
  file.append("lost");
  file.take_news();
  const UniqueFd reader(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string got, said, chunk(65536, 0);
  while (!kPatience.expired() && (said.empty() || got.find("again") == std::string::npos)) {
    file.append("again");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ssize_t read = ::read(reader.get(), chunk.data(), chunk.size());
    if (read > 0) got.append(chunk, 0, static_cast<std::size_t>(read));
    said += file.take_news().value_or("");
  }
  EXPECT_THAT(said, ContainsRegex("log: [0-9]+ bytes of output were dropped"));
  EXPECT_THAT(got, HasSubstr("again"));
  EXPECT_EQ(got.find("lost"), std::string::npos);
}

TEST_F(Fifo, IsGivenUpAtTheEnd) {
  LogFile file(open_full(), "log");
  file.append(std::string(1 << 20, 'x'));
  EXPECT_FALSE(file.settle(Deadline::after(std::chrono::milliseconds(50))));
  file.give_up();
  EXPECT_THAT(file.take_news().value_or(""), HasSubstr("bytes of output were dropped"));
}

// In a child that may have no more threads, as under pids.max of a container.
TEST(LogFile, WithoutAThreadTheLossIsSaidAndTheJobGoesOn) {
  const test::TempDir folder;
  const std::string path = folder / "log";
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr rlimit kNone{0, 0};
    const bool limited = ::setrlimit(RLIMIT_NPROC, &kNone) == 0 && (::getuid() != 0 || ::setuid(65534) == 0);
    LogFile log(std::move(file), path);
    log.append("lost\n");
    const auto news = log.take_news();
    ::_exit(!limited                                                                      ? 2
            : news && news->find("Resource temporarily unavailable") != std::string::npos ? 0
                                                                                          : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it died, as the job would";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace dtrain::launcher
