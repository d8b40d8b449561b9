// Workers whose options differ where they must not: the option and both values, on every rank.
#include "training/start/same_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "collectives/thread_ranks.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();

/// What each rank heard where rank 2 has `other` beside what the others have; "" for none.
std::map<int, std::string> heard(const std::map<std::string, OptionValue>& other) {
  NullLog log;
  std::mutex mutex;
  std::map<int, std::string> words;
  const auto compare = [&](Communicator& workers) {
    std::map<std::string, OptionValue> values = {{"lr", {"0.1", "default"}},
                                                 {"run-dir", {"/a", "command line", Agreement::own}}};
    if (workers.rank() == 2) {
      for (const auto& [name, value] : other) values[name] = value;
    }
    std::string told;
    try {
      check_same_options(Options(values), workers, kNever);
      workers.barrier("next")->wait(kNever);
    } catch (const Error& error) {
      told = error.what();
    }
    const std::lock_guard lock(mutex);
    words[workers.rank()] = told;
  };
  run_thread_ranks(3, {}, log, compare);
  return words;
}

TEST(SameOptions, WhatIsAWorkersOwnMayDiffer) {
  for (const auto& [rank, words] : heard({{"run-dir", {"/b", "command line", Agreement::own}},
                                          {"threads", {"2", "DTRAIN_THREADS", Agreement::own}}}))
    EXPECT_EQ(words, "") << rank;
}

TEST(SameOptions, OthersAreNamedWithBothValuesOnEveryRank) {
  const auto values = heard({{"lr", {"0.2", "command line"}}});
  const auto unknown = heard({{"mesh", {"dp=3", "command line"}}});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(values.at(rank), HasSubstr("--lr: expected '0.1', as rank 0 has it, got '0.2' on rank 2"));
    EXPECT_THAT(unknown.at(rank),
                HasSubstr("--mesh: expected nothing, as rank 0 has it, got 'dp=3' on rank 2"));
  }
}

}  // namespace
}  // namespace dtrain
