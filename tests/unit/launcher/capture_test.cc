// One worker's stream on its way to console and file, through real pipes.
#include "launcher/output/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CaptureTest : public ::testing::Test {
 protected:
  CaptureTest()
      : out_(::open((folder_ / "out").c_str(), O_CREAT | O_RDWR | O_APPEND, 0600)),
        err_(::open((folder_ / "err").c_str(), O_CREAT | O_RDWR | O_APPEND, 0600)),
        console_(out_.get(), err_.get(), {}) {}

  static void send(const Capture& capture, std::string_view text) {
    ASSERT_EQ(::write(capture.worker_end(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string shown(const char* name = "out") {
    console_.out().flush();
    console_.err().flush();
    return test::read_file(folder_ / name);
  }

  test::TempDir folder_;
  UniqueFd out_, err_;
  Console console_;
};

TEST_F(CaptureTest, LinesOfTwoWorkersNeverMix) {
  Capture a({}, "a: ", {}, console_), b({}, "b: ", {}, console_);
  send(a, "one ");
  a.read_some(1000);
  send(b, "two\n");
  b.read_some(1000);
  send(a, "three\nfour");
  a.read_some(1000);
  EXPECT_EQ(shown(), "b: two\na: one three\n");
  a.started();
  a.finish();
  EXPECT_EQ(shown(), "b: two\na: one three\na: four\n");
}

TEST_F(CaptureTest, ConsoleIsEscapedFileIsNot) {
  CaptureOptions options;
  options.log_folder = folder_ / "logs";
  Capture capture({true, "3/stdout.log"}, "", options, console_);
  send(capture, "\x1b[31mred\n");
  capture.finish();
  ASSERT_TRUE(capture.settle_file(Deadline::after(std::chrono::seconds(20))));
  capture.give_up_file();
  EXPECT_EQ(shown(), "\\x1b[31mred\n");
  EXPECT_EQ(test::read_file(folder_ / "logs/3/stdout.log"), "\x1b[31mred\n");
  EXPECT_EQ(capture.file_path(), folder_ / "logs/3/stdout.log");
}

TEST_F(CaptureTest, PassthroughLeavesControlCharacters) {
  CaptureOptions options;
  options.passthrough = true;
  Capture capture({}, "", options, console_);
  send(capture, "\x1b[31mred\n");
  capture.finish();
  EXPECT_EQ(shown(), "\x1b[31mred\n");
}

TEST_F(CaptureTest, RedirectedStreamGoesStraightToTheFileAndIsStillReported) {
  CaptureOptions options;
  options.to_err = true;
  options.log_folder = folder_ / "logs";
  Capture capture({false, "0/stderr.log"}, "", options, console_);
  EXPECT_EQ(capture.poll_fd(), -1) << "nothing goes through the launcher";
  send(capture, "first\nlast\n");
  capture.started();
  EXPECT_THAT(capture.last_lines(), ElementsAre("first", "last"));
  EXPECT_EQ(shown("err"), "");
}

TEST_F(CaptureTest, HiddenStderrIsKeptForTheReport) {
  CaptureOptions options;
  options.to_err = true;
  Capture capture({false, ""}, "", options, console_);
  send(capture, "why\n");
  capture.finish();
  EXPECT_EQ(shown("err"), "");
  EXPECT_THAT(capture.last_lines(), ElementsAre("why"));
}

TEST_F(CaptureTest, EndOfStreamIsNotPolledAgain) {
  Capture capture({}, "", {}, console_);
  EXPECT_GE(capture.poll_fd(), 0);
  capture.started();
  EXPECT_FALSE(capture.read_some(1000));
  EXPECT_EQ(capture.poll_fd(), -1);
}

TEST_F(CaptureTest, AFullConsoleHoldsTheWorkerBack) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  Console slow(write_end.get(), err_.get(), {});
  Capture capture({}, "", {}, slow);
  const std::string line(1000, 'x');
  for (int i = 0; i < 2000; ++i) slow.line(false, "", line);
  slow.out().flush();
  EXPECT_TRUE(slow.out().full());
  EXPECT_EQ(capture.poll_fd(), -1);
  std::string drained(65536, 0);
  while (slow.out().wants_to_write()) {
    ASSERT_GT(::read(read_end.get(), drained.data(), drained.size()), 0);
    slow.out().flush();
  }
  EXPECT_GE(capture.poll_fd(), 0);
}

TEST_F(CaptureTest, AReaderThatLeftEndsTheWorkersPipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::signal(SIGPIPE, SIG_IGN);
  const UniqueFd write_end(ends[1]);
  ::close(ends[0]);
  Console gone(write_end.get(), err_.get(), {});
  Capture capture({}, "", {}, gone);
  send(capture, "text\n");
  capture.read_some(1000);
  gone.out().flush();
  EXPECT_TRUE(gone.out().broken());
  EXPECT_EQ(capture.poll_fd(), -1);
  EXPECT_EQ(::write(capture.worker_end(), "x", 1), -1);
}

TEST_F(CaptureTest, AFullDiskIsNotAReaderThatLeft) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Console console(full.get(), err_.get(), {});
  Capture capture({}, "", {}, console);
  for (int i = 0; i < 3; ++i) {
    send(capture, "line\n");
    capture.read_some(1000);
    console.flush();
  }
  EXPECT_FALSE(console.out().broken());
  EXPECT_FALSE(console.out().wants_to_write()) << "or the loop would spin on a stream that is always ready";
  EXPECT_GE(capture.poll_fd(), 0) << "the worker keeps its pipe";
  const std::string once =
      "dtrain-launch: stdout takes nothing: No space left on device; the workers run on, and what they print "
      "is "
      "dropped until it does\n";
  console.flush();
  EXPECT_EQ(shown("err"), once);

  ASSERT_EQ(::dup3(out_.get(), full.get(), O_CLOEXEC), full.get());  // there is room again
  send(capture, "more\n");
  capture.read_some(1000);
  console.flush();
  console.flush(Deadline::after(std::chrono::seconds(1)));
  EXPECT_EQ(shown(), "more\n");
  EXPECT_EQ(shown("err"),
            once + "dtrain-launch: stdout: 15 bytes of output were dropped: No space left on device\n");
}

TEST_F(CaptureTest, AFullDiskUnderALogFileIsTriedAgain) {
  CaptureOptions options;
  options.log_folder = folder_ / "logs";
  std::filesystem::create_directories(folder_ / "logs/0");
  std::filesystem::create_symlink("/dev/full", folder_ / "logs/0/stdout.log");
  Capture capture({true, "0/stdout.log"}, "", options, console_);
  send(capture, "one\n");
  capture.read_some(1000);
  send(capture, "two\n");
  capture.started();
  capture.finish();
  ASSERT_TRUE(capture.settle_file(Deadline::after(std::chrono::seconds(20))));
  capture.give_up_file();
  EXPECT_EQ(shown(), "one\ntwo\n");
  EXPECT_THAT(shown("err"), HasSubstr("stdout.log: 8 bytes of output were dropped: No space left on device"));
}

}  // namespace
}  // namespace dtrain::launcher
