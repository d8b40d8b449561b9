// The progress line: what fits is shown, and it never floods.
#include "runtime/metrics/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/fd.h"
#include "runtime/metrics/memory.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

Progress sample() {
  Progress progress;
  progress.step = 50;
  progress.total_steps = 200;
  progress.epoch = 1;
  progress.epochs = 10;
  progress.loss = 0.53217;
  progress.samples_per_second = 12345.6;
  progress.time_left = seconds(75);
  progress.resident_bytes = 64 << 20;
  return progress;
}

TEST(FormatProgress, SaysEverythingWhenThereIsRoom) {
  EXPECT_EQ(format_progress(sample(), 0, false, false),
            "step 50/200  epoch 2/10  loss 0.5322  12346 samples/s  ETA 1 min 15 s  64.0 MiB");
}

TEST(FormatProgress, CountsTokensWhereSamplesAreTexts) {
  Progress text = sample();
  text.tokens_per_sample = 1024;
  EXPECT_THAT(format_progress(text, 0, false, false), HasSubstr("loss 0.5322  12641894 tokens/s  ETA"));
}

TEST(FormatProgress, LeavesOutWhatIsNotKnown) {
  Progress bare;
  bare.step = 7;
  bare.loss = 1;
  EXPECT_EQ(format_progress(bare, 0, true, false), "step 7  loss 1.0000");
}

TEST(FormatProgress, SaysWhatIsDoneInPlaceOfSteps) {
  Progress work;
  work.step = 25;
  work.total_steps = 100;
  work.done = "0.1 MB, 3 shards";
  EXPECT_EQ(format_progress(work, 0, false, false), "0.1 MB, 3 shards");
  EXPECT_EQ(format_progress(work, 60, true, false),
            "[==========                              ]  0.1 MB, 3 shards");
}

TEST(FormatProgress, NeverExceedsTheWidth) {
  for (int width = 1; width < 160; ++width) {
    const std::string line = format_progress(sample(), width, true, false);
    EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    EXPECT_EQ(line.find("step  50/200") == std::string::npos, width < 12) << line;
  }
  EXPECT_EQ(format_progress(sample(), 26, true, false), "step  50/200  loss 0.5322");
}

TEST(FormatProgress, BarShowsTheShareDone) {
  const std::string line = format_progress(sample(), 130, true, false);
  const auto bar = line.substr(0, line.find(']') + 1);
  EXPECT_EQ(std::count(bar.begin(), bar.end(), '='), 10) << line;  // a quarter of 40
  EXPECT_EQ(std::count(bar.begin(), bar.end(), ' '), 30);
}

TEST(FormatProgress, ColourChangesNoColumn) {
  std::string coloured = format_progress(sample(), 60, true, true);
  EXPECT_THAT(coloured, HasSubstr("\x1b[1mloss 0.5322\x1b[0m"));
  for (const std::string code : {"\x1b[1m", "\x1b[0m"}) coloured.erase(coloured.find(code), code.size());
  EXPECT_EQ(coloured, format_progress(sample(), 60, true, false));
}

TEST(FormatDuration, HasTwoUnits) {
  EXPECT_EQ(format_duration(seconds(-3)), "0 s");
  EXPECT_EQ(format_duration(milliseconds(59'400)), "59 s");
  EXPECT_EQ(format_duration(minutes(3) + seconds(5)), "3 min 05 s");
  EXPECT_EQ(format_duration(hours(25) + minutes(2)), "25 h 02 min");
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(64'500'000), "61.5 MiB");
  EXPECT_EQ(format_bytes(3LL << 40), "3.0 TiB");
}

class ProgressLineTest : public testing::Test {
 protected:
  std::string written() const { return test::read_file(folder_ / "out"); }
  ProgressOptions terminal() const {
    ProgressOptions options;
    options.terminal = true;
    options.width = [] { return 40; };
    return options;
  }

  test::TempDir folder_;
  test::ManualClock clock_;
  UniqueFd fd_{::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600)};
};

TEST_F(ProgressLineTest, PlainLinesNowAndThen) {
  {
    ProgressLine line(fd_.get(), ProgressOptions{}, clock_);
    Progress progress = sample();
    progress.time_left.reset();
    for (int i = 0; i < 2500; ++i) {  // 25 s at 100 steps a second
      progress.step = i;
      line.update(progress);
      clock_.advance(milliseconds(10));
    }
  }
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;  // at 0, 10, 20 s and the last
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 0);
  EXPECT_THAT(text, HasSubstr("step 1000/200  "));
  EXPECT_THAT(text, HasSubstr("step 2499/200"));
}

TEST_F(ProgressLineTest, RedrawsInPlaceOnATerminal) {
  {
    ProgressLine line(fd_.get(), terminal(), clock_);
    for (int i = 1; i <= 100; ++i) {
      Progress progress = sample();
      progress.step = i;
      line.update(progress);
      clock_.advance(milliseconds(10));
    }
    line.message("epoch 1: accuracy 0.87");
  }
  const std::string text = written();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 12 + 1) << "redrawn every 100 ms at most";
  EXPECT_GE(std::count(text.begin(), text.end(), '\r'), 10);
  EXPECT_THAT(text,
              HasSubstr("\r\x1b[Kepoch 1: accuracy 0.87\n\r\x1b[K[=====     ]  step 100/200  loss 0.5322\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(ProgressLineTest, ResultsThatComeManyTimesASecondAreNoFlood) {
  {
    ProgressOptions options;
    options.results_at_once = 3;
    ProgressLine line(fd_.get(), options, clock_);
    for (int epoch = 1; epoch <= 30; ++epoch) {
      line.result("epoch " + std::to_string(epoch));
      clock_.advance(milliseconds(100));
    }
  }
  EXPECT_EQ(written(),
            "epoch 1\nepoch 2\nepoch 3\n(7 more, not printed)\nepoch 11\n"
            "(9 more, not printed)\nepoch 21\n(8 more, not printed)\nepoch 30\n")
      << "three at once, then a second apart, and the last";
}

TEST(WrapWords, BreaksLinesAtSpaces) {
  EXPECT_EQ(wrap_words("one two three", 7), "one two\n  three");
  EXPECT_EQ(wrap_words("one two three", 6), "one\n  two\n  three");
  EXPECT_EQ(wrap_words("one two three", 0), "one two three");
  EXPECT_EQ(wrap_words("a b\nc d e\n", 3), "a b\nc d\n  e\n") << "lines of its own";
  EXPECT_EQ(wrap_words("in /a/path/that/is/long", 8), "in\n  /a/path/that/is/long") << "a word stays whole";
  EXPECT_EQ(wrap_words("/a/path/that/is/long", 8), "/a/path/that/is/long");
  EXPECT_EQ(wrap_words("×× ××", 5), "×× ××") << "characters, not bytes";
  EXPECT_EQ(wrap_words("", 5), "");
}

TEST_F(ProgressLineTest, MessagesKeepToTheTerminalsWidth) {
  const std::string text = "epoch 1: loss 1.5429, 10,672 samples/s",
                    shorter = "epoch 1: loss 1.5429, 10,672/s";
  for (const auto& [width, expected] :
       {std::pair{38, text}, {37, shorter}, {25, "epoch 1: loss 1.5429,\n  10,672/s"}}) {
    ProgressOptions options;
    options.terminal = true;
    options.width = [width = width] { return width; };
    const std::size_t before = written().size();
    ProgressLine(fd_.get(), options, clock_).result(text, shorter);
    EXPECT_EQ(written().substr(before), expected + "\n") << width;
  }
  const std::size_t before = written().size();
  ProgressLine(fd_.get(), ProgressOptions{}, clock_).result(text, shorter);
  EXPECT_EQ(written().substr(before), text + "\n") << "a file has no width";
}

TEST_F(ProgressLineTest, EachOfAHundredResultsIsPrintedHoweverFastTheyCome) {
  {
    ProgressLine line(fd_.get(), ProgressOptions{}, clock_);
    for (int epoch = 1; epoch <= 100; ++epoch) line.result("epoch " + std::to_string(epoch));
  }
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100) << text;
}

TEST_F(ProgressLineTest, EstimatesTheTimeLeft) {
  ProgressLine line(fd_.get(), ProgressOptions{}, clock_);
  Progress progress = sample();
  progress.time_left.reset();
  progress.step = 100;  // resumed: only the pace since then counts
  line.update(progress);
  clock_.advance(seconds(20));
  progress.step = 110;
  line.update(progress);
  EXPECT_THAT(written(), HasSubstr("step 110/200  epoch 2/10  loss 0.5322  12346 samples/s  ETA 3 min 00 s"));
}

TEST_F(ProgressLineTest, OptionsFollowTheDescriptor) {
  const auto options = progress_options_for(fd_.get(), {});
  EXPECT_FALSE(options.terminal);
  EXPECT_FALSE(options.colour);
  EXPECT_EQ(options.width(), 80);
  const UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY));
  if (!terminal) GTEST_SKIP() << "no pseudo terminal here";
  EXPECT_TRUE(progress_options_for(terminal.get(), {}).colour);
  EXPECT_FALSE(progress_options_for(terminal.get(), {{"NO_COLOR", "1"}}).colour) << "NO_COLOR";
  EXPECT_TRUE(progress_options_for(terminal.get(), {{"NO_COLOR", "1"}}).terminal);
}

TEST(ResidentBytes, IsTheSecondField) {
  EXPECT_EQ(parse_resident_bytes("1000 250 30 1 0 40 0\n", 4096), 250 * 4096);
  EXPECT_EQ(parse_resident_bytes("", 4096), 0);
  EXPECT_EQ(parse_resident_bytes("1000 x", 4096), 0);
  EXPECT_GT(resident_bytes(), 1 << 18);
}

}  // namespace
}  // namespace dtrain
