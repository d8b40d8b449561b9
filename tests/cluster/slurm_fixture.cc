#include "tests/cluster/slurm_fixture.h"

namespace dtrain::test {

std::optional<SlurmLab> SlurmTest::lab_;

void SlurmTest::SetUpTestSuite() {
  if (!SlurmLab::unavailable()) lab_.emplace(2, 4);
}

void SlurmTest::SetUp() {
  if (const auto why = SlurmLab::unavailable()) GTEST_SKIP() << *why;
  write_small_dataset(folder_ / "data", 500, 50);
}

RunOptions SlurmTest::one_thread() {
  RunOptions options = limited_to(std::chrono::seconds(90));
  options.environment.emplace("OMP_NUM_THREADS", "1");
  return options;
}

}  // namespace dtrain::test
