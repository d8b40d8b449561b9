// Which GPUs workers of a node have that name them alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/make_strategy.h"

namespace dtrain {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kTwo = {"cuda:1", "cuda:0"};

TEST(OwnGpus, AreDealtOutWhereThereAreEnoughForAll) {
  EXPECT_THAT(own_gpus(kTwo, 0, 2, 4), ElementsAre("cuda:1", "cuda:0"));
  EXPECT_THAT(own_gpus(kTwo, 1, 2, 4), ElementsAre("cuda:3", "cuda:2"));
  EXPECT_THAT(own_gpus(kTwo, 1, 2, 7), ElementsAre("cuda:4", "cuda:3"));
  EXPECT_THAT(own_gpus({"cuda:0", "cuda:2"}, 1, 2, 6), ElementsAre("cuda:3", "cuda:5"));
  EXPECT_THAT(own_gpus(kTwo, 0, 1, 4), ElementsAre("cuda:1", "cuda:0"));
}

// A worker that sees only its own GPUs, and one that must share them.
TEST(OwnGpus, AreThoseThatAreNamedWhereThereAreFewer) {
  EXPECT_THAT(own_gpus(kTwo, 1, 2, 2), ElementsAre("cuda:1", "cuda:0"));
  EXPECT_THAT(own_gpus(kTwo, 1, 2, 3), ElementsAre("cuda:1", "cuda:0"));
}

TEST(OwnGpus, LeaveCpusAlone) {
  EXPECT_THAT(own_gpus({"cpu:0", "cpu:1"}, 1, 2, 8), ElementsAre("cpu:0", "cpu:1"));
  EXPECT_THAT(own_gpus({}, 1, 2, 8), ElementsAre());
}

}  // namespace
}  // namespace dtrain
