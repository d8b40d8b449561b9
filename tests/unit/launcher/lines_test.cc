// Cutting and escaping of workers' output.
#include "launcher/output/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;

// Lines as they are handed out; "…" stands where one continues.
std::vector<std::string> split(const std::vector<std::string>& chunks, bool has_states = true) {
  LineSplitter splitter(has_states);
  std::vector<std::string> lines;
  const auto take = [&](const TextLine& line) {
    lines.push_back(std::string(line.continued ? kCut : "") + std::string(line.text) +
                    std::string(line.unfinished ? kCut : ""));
  };
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
  for (int i = 0; i < 5000; ++i) {
    const auto draw = random() % 36;
    text += draw < 4 ? '\n' : draw < 8 ? '\r' : static_cast<char>('a' + random() % 26);
  }
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
  const std::string piece(kMaxLineBytes, 'x');
  EXPECT_THAT(split({text.substr(0, 100), text.substr(100), "\nnext\n"}),
              ElementsAre(piece + "…", "…" + piece + "…", "…xxxxx", "next"));
  EXPECT_EQ(split({std::string(kMaxLineBytes, 'y') + "\n"}).size(), 1u);
}

TEST(Lines, PiecesEndBetweenCharacters) {
  std::string text = "x";
  for (std::size_t i = 0; i < kMaxLineBytes / 2; ++i) text += "ä";
  EXPECT_THAT(split({text, "\n"}), ElementsAre(text.substr(0, kMaxLineBytes - 1) + "…", "…ä"));
}

TEST(Lines, ACarriageReturnStartsTheLineAnew) {
  EXPECT_THAT(split({"\r 1%\r 2%", "\r 3%\n"}), ElementsAre(" 3%"));
  EXPECT_THAT(split({"1\r", "2\r", "3\r", "\n"}), ElementsAre("3"));
  EXPECT_THAT(split({"\r 1%", "\r    \r", "text\n"}), ElementsAre("text"));
  EXPECT_THAT(split({"ab\r\n", "cd\r", "\n", "ef\r\r\n"}), ElementsAre("ab", "cd", "ef")) << "ends of lines";
  EXPECT_THAT(split({"\r 1%\r 2%\n"}, false), ElementsAre("\r 1%\r 2%"));
}

TEST(Lines, BarsBelowEachOtherAreStatesToo) {
  std::vector<std::string> chunks{"\router 0\n"};
  for (int i = 0; i < 100; ++i) chunks.push_back(std::string("\rinner ") + std::to_string(i) + "\x1b[A\n");
  chunks.emplace_back("\rinner 100\n");
  EXPECT_THAT(split(chunks), ElementsAre("outer 0", "inner 100"));
}

TEST(Lines, AStateIsKnownBeforeItsLineEnds) {
  LineSplitter lines;
  const auto none = [](const TextLine& line) { ADD_FAILURE() << line.text; };
  lines.feed("text", none);
  EXPECT_FALSE(lines.holds_state());
  lines.feed("\r", none);
  EXPECT_TRUE(lines.holds_state()) << "as long as no newline follows";
  EXPECT_EQ(lines.unfinished(), "text");
  for (int i = 0; i < 100000; ++i) lines.feed(std::string("\rstep ") + std::to_string(i), none);
  EXPECT_EQ(lines.unfinished(), "step 99999");
  bool was_state = false;
  lines.feed("\n", [&](const TextLine& line) { was_state = line.state; });
  EXPECT_TRUE(was_state);
  EXPECT_FALSE(lines.holds_state());
}

TEST(Lines, WhatIsUnfinishedCanBeHandedOutAndContinued) {
  LineSplitter lines;
  std::vector<std::string> got;
  const auto take = [&](const TextLine& line) {
    got.push_back(std::string(line.text) + (line.continued ? " continued" : "") +
                  (line.unfinished ? " unfinished" : ""));
  };
  lines.hand_out_unfinished(take);
  lines.feed("name? ", take);
  lines.hand_out_unfinished(take);
  lines.hand_out_unfinished(take);
  lines.feed("bob\nnext\n", take);
  lines.feed("last", take);
  lines.hand_out_unfinished(take);
  lines.finish(take);
  lines.finish(take);
  EXPECT_THAT(got,
              ElementsAre("name?  unfinished", "bob continued", "next", "last unfinished", " continued"));
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
  tail.add(std::string(100000, 'z') + "the error");
  EXPECT_LE(tail.lines().back().size(), 512u);
  EXPECT_TRUE(tail.lines().back().starts_with("…z")) << "says that something is missing";
  EXPECT_TRUE(tail.lines().back().ends_with("the error"));
  tail.add(" and more", true);
  EXPECT_TRUE(tail.lines().back().ends_with("the error and more"));
  EXPECT_EQ(tail.lines().size(), 3u);
}

}  // namespace
}  // namespace dtrain::launcher
