// Slurm's notations: what they stand for, and that hostile ones are refused before they cost anything.
#include "cluster/detect/nodelist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "runtime/base/error.h"
#include "tests/fuzz/targets.h"

namespace dtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> expand(std::string_view text) {
  return expand_nodelist(text, "SLURM_STEP_NODELIST");
}
std::vector<int> tasks(std::string_view text) {
  return expand_tasks_per_node(text, "SLURM_STEP_TASKS_PER_NODE");
}

TEST(Nodelist, Expands) {
  EXPECT_THAT(expand("login1"), ElementsAre("login1"));
  EXPECT_THAT(expand("a,b.example.org,c-1"), ElementsAre("a", "b.example.org", "c-1"));
  EXPECT_THAT(expand("gpu[001-004,007],login1"),
              ElementsAre("gpu001", "gpu002", "gpu003", "gpu004", "gpu007", "login1"));
  EXPECT_THAT(expand("r[1-2]n[01-03]"), ElementsAre("r1n01", "r1n02", "r1n03", "r2n01", "r2n02", "r2n03"));
  EXPECT_THAT(expand("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(expand("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand("n[3]"), ElementsAre("n3"));
  EXPECT_THAT(expand("n[0-1][5-6]"), ElementsAre("n05", "n06", "n15", "n16"));
  EXPECT_EQ(expand("n[1-131072]").size(), 131072U);
}

TEST(Nodelist, RefusesWhatTheGrammarDoesNotHave) {
  for (const char* text :
       {"",      ",",   "a,",      ",a",      "a,,b",   "[1-2]", "n[1-2]x", "n[1-2",
        "n[",    "n[]", "n[1-]",   "n[-2]",   "n[2-1]", "n[1,]", "n[a]",    "n]",
        "n[1]]", "a b", "n[1-2]-", "n[1--2]", "n[[1]]", "a/b",   "n[1 -2]", "n[1234567890123456789]"}) {
    EXPECT_THROW(expand(text), UsageError) << text;
  }
  EXPECT_THROW(expand(std::string_view("a\0b", 3)), UsageError);
  EXPECT_THROW(expand(std::string(254, 'a')), UsageError);
}

TEST(Nodelist, CountsBeforeItExpands) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* text :
       {"n[0-131072]", "n[0-999999999999999999]", "n[0-9999][0-9999][0-9999]", "n[1-131072],m",
        "n[0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99]",
        "n[0-131071],n[0-131071]"}) {
    EXPECT_THROW(expand(text), UsageError) << text;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Nodelist, MessageNamesVariableAndPlace) {
  try {
    expand("gpu[1-2]x,b");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("SLURM_STEP_NODELIST"));
    EXPECT_THAT(error.what(), HasSubstr("byte 9"));
  }
}

TEST(TasksPerNode, Expands) {
  EXPECT_THAT(tasks("2"), ElementsAre(2));
  EXPECT_THAT(tasks("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(tasks("4,1(x3)"), ElementsAre(4, 1, 1, 1));
  EXPECT_EQ(tasks("1(x131072)").size(), 131072U);
}

TEST(TasksPerNode, RefusesTheRest) {
  for (const char* text :
       {"", "0", "x", "2(", "2(x", "2(x)", "2(x0)", "2(3)", "2(x3", "2(x3)4", "2,", ",2", "-1", "2 ",
        "1(x131073)", "1(x131072),1", "9999999", "99999999999999999999", "1(x99999999999999999)"}) {
    EXPECT_THROW(tasks(text), UsageError) << text;
  }
}

// The fuzz targets on bytes drawn from the grammar's own alphabet: reaches deep without a corpus.
TEST(Fuzz, NodelistAndTasksHoldTheirBoundsOnArbitraryText) {
  constexpr std::string_view kAlphabet = "abn019[]()x,-._ \n";
  std::mt19937 random(20240101);
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = kAlphabet[random() % kAlphabet.size()];
    fuzz::nodelist(text);
    fuzz::tasks_per_node(text);
  }
}

}  // namespace
}  // namespace dtrain
