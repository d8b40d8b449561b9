// Cutting and escaping of workers' output.
#include "launcher/output/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(const std::vector<std::string>& chunks) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& chunk : chunks) splitter.feed(chunk, take);
  splitter.finish(take);
  return lines;
}

TEST(Lines, WholeLinesHoweverTheyArrive) {
  EXPECT_THAT(split({"ab\ncd\n"}), ElementsAre("ab", "cd"));
  EXPECT_THAT(split({"a", "b", "\nc", "d\n"}), ElementsAre("ab", "cd"));
  EXPECT_THAT(split({"\n\n"}), ElementsAre("", ""));
  EXPECT_THAT(split({"no newline"}), ElementsAre("no newline"));
}

TEST(Lines, AnyChunkingGivesTheSameLines) {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < 5000; ++i) text += random() % 9 == 0 ? '\n' : static_cast<char>('a' + random() % 26);
  const auto expected = split({text});
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> chunks;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + random() % 40;
      chunks.push_back(text.substr(at, length));
      at += length;
    }
    ASSERT_EQ(split(chunks), expected);
  }
}

TEST(Lines, OverlongLinesComeInPieces) {
  const std::string text(kMaxLineBytes * 2 + 5, 'x');
  const auto lines = split({text.substr(0, 100), text.substr(100), "\nnext\n"});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].size(), kMaxLineBytes);
  EXPECT_EQ(lines[1].size(), kMaxLineBytes);
  EXPECT_EQ(lines[2].size(), 5u);
  EXPECT_EQ(lines[3], "next");
  EXPECT_EQ(split({std::string(kMaxLineBytes, 'y') + "\n"}).size(), 1u);
}

TEST(Lines, ControlCharactersBecomeVisible) {
  EXPECT_EQ(escape_controls("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(escape_controls("a\rb"), "a\\rb");
  EXPECT_EQ(escape_controls(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escape_controls("\x7f\b"), "\\x7f\\x08");
  EXPECT_EQ(escape_controls("x\xc2\x9bm"), "x\\x9bm");  // CSI as one character
  EXPECT_EQ(escape_controls("tab\tümläut 漢"), "tab\tümläut 漢");
  EXPECT_EQ(escape_controls("dos\r"), "dos");
}

TEST(Lines, ProgressTextLosesItsSequences) {
  EXPECT_EQ(strip_controls("\x1b[2K\x1b[32m50%\x1b[0m done\x1b"), "50% done");
  EXPECT_EQ(strip_controls("\x1b[12"), "");
}

TEST(Lines, FirstColumnsCountCharactersNotBytes) {
  EXPECT_EQ(first_columns("äöü", 2), "äö");
  EXPECT_EQ(first_columns("abc", 5), "abc");
  EXPECT_EQ(first_columns("abc", 0), "");
}

TEST(Lines, TailKeepsTheLastWithinBounds) {
  Tail tail(3);
  for (int i = 0; i < 10; ++i) tail.add(std::to_string(i));
  EXPECT_THAT(tail.lines(), ElementsAre("7", "8", "9"));
  tail.add(std::string(100000, 'z'));
  EXPECT_LE(tail.lines().back().size(), 512u);
}

}  // namespace
}  // namespace dtrain::launcher
