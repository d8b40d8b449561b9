// One worker's stream on its way to console and file, through real pipes.
#include "launcher/output/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/manual_clock.h"
#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
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

  // The worker writes `text`, and nothing more for `later`.
  void hear(Capture& capture, std::string_view text, Duration later = Duration::zero()) {
    constexpr std::size_t kChunk = 30000;  // fits into a pipe
    for (std::size_t at = 0; at < text.size(); at += kChunk) {
      send(capture, text.substr(at, kChunk));
      capture.read_some(kChunk);
    }
    clock_.advance(later);
    capture.keep_time();
  }
  static CaptureOptions on_stderr() {
    CaptureOptions options;
    options.to_err = true;
    return options;
  }

  test::TempDir folder_;
  test::ManualClock clock_;
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

TEST_F(CaptureTest, PassthroughOfSeveralWorkersChangesNoByte) {
  CaptureOptions options;
  options.passthrough = true;
  Capture a({}, "", options, console_, clock_), b({}, "", options, console_, clock_);
  hear(a, "10%\r20%\r\n");
  hear(a, std::string(kMaxLineBytes + 5, 'x'));
  hear(a, "\nopen", Capture::kQuiet);
  a.finish();
  b.finish();
  EXPECT_EQ(shown(), "10%\r20%\r\n" + std::string(kMaxLineBytes + 5, 'x') + "\nopen");
}

TEST_F(CaptureTest, StdoutOfOneWorkerIsData) {
  CaptureOptions options;
  options.alone = true;
  Capture capture({}, "", options, console_, clock_);
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  all += "\r\n\n\r 1%\r 2%" + std::string(3 * kMaxLineBytes, '\0') + "no end";
  hear(capture, all);
  capture.finish();
  EXPECT_TRUE(shown() == all);
  console_.say("done");
  EXPECT_EQ(shown("err"), "dtrain-launch: done\n");
}

// As `dtrain-launch … > file 2>&1` has it.
TEST_F(CaptureTest, MessagesDoNotRunIntoALineOfTheSameFile) {
  Console one(out_.get(), out_.get(), {});
  CaptureOptions options;
  options.alone = true;
  {
    Capture capture({}, "", options, one, clock_);
    hear(capture, "no end");
    capture.finish();
  }
  one.say("done");
  one.flush();
  EXPECT_EQ(shown(), "no end\ndtrain-launch: done\n");
}

TEST_F(CaptureTest, OfABarAFileGetsTheNewestStateNowAndThen) {
  Capture capture({}, "", on_stderr(), console_, clock_);
  for (int i = 0; i <= 1000; ++i) {
    hear(capture, std::to_string(i).insert(0, 1, '\r') + " of 1000", milliseconds(10));
    EXPECT_LE(capture.deadline().value_or(clock_.now()) - clock_.now(), Capture::kStateInterval);
  }
  const std::string until_now = shown("err");
  EXPECT_THAT(until_now, ::testing::MatchesRegex("0 of 1000\n[45][0-9]+ of 1000\n(99[0-9]|1000) of 1000\n"));
  hear(capture, "\nafter\n");
  EXPECT_THAT(shown("err"), ::testing::EndsWith("\n1000 of 1000\nafter\n"));
  EXPECT_THAT(capture.last_lines(), ElementsAre("1000 of 1000", "after"));
}

TEST_F(CaptureTest, AStateIsShownOnce) {
  Capture capture({}, "", on_stderr(), console_, clock_);
  hear(capture, "\rhalf", seconds(60));
  hear(capture, "\rhalf", seconds(60));
  hear(capture, "\r    \r", seconds(60));
  hear(capture, "\rhalf\n");
  EXPECT_EQ(shown("err"), "half\n");
  hear(capture, "half\n");
  EXPECT_EQ(shown("err"), "half\nhalf\n") << "a line is no state";
}

TEST_F(CaptureTest, AReportHasTheErrorAndNotTheBarBeforeIt) {
  CaptureOptions options = on_stderr();
  options.log_folder = folder_ / "logs";
  Capture shown({}, "", on_stderr(), console_, clock_),
      to_file({false, "0/stderr.log"}, "", options, console_);
  for (Capture* capture : {&shown, &to_file}) {
    for (int i = 0; i < 3000; ++i) send(*capture, std::to_string(i).insert(0, 1, '\r') + "% of a bar");
    send(*capture, "Traceback\nError: " + std::string(1000, 'x') + " in the end\n");
    capture->started();
    capture->finish();
    const auto lines = capture->last_lines();
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0], "2999% of a barTraceback");
    EXPECT_TRUE(lines[1].starts_with("…") && lines[1].ends_with("x in the end")) << lines[1];
  }
}

TEST_F(CaptureTest, ALineWithoutAnEndIsShownWhenNothingFollows) {
  Capture a({}, "a: ", {}, console_, clock_), b({}, "b: ", {}, console_, clock_);
  hear(a, "loading", Capture::kQuiet / 2);
  EXPECT_EQ(shown(), "");
  hear(a, " …", Capture::kQuiet / 2);
  EXPECT_EQ(shown(), "") << "something came meanwhile";
  clock_.advance(Capture::kQuiet / 2);
  a.keep_time();
  EXPECT_EQ(shown(), "a: loading …");
  hear(a, " done\n");
  EXPECT_EQ(shown(), "a: loading … done\n") << "nobody came between";
  hear(a, "again", Capture::kQuiet);
  hear(b, "line\n");
  hear(a, "and again", Capture::kQuiet);
  hear(a, "\n");
  EXPECT_EQ(shown(), "a: loading … done\na: again…\nb: line\na: …and again\n") << "a cut line says so";
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
  for (int i = 0; i < 2000; ++i) slow.line({}, line);
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
      "dtrain-launch: stdout cannot be written to: No space left on device; the workers continue, and their "
      "output is dropped until it can\n";
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
