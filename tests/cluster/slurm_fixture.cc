#include "tests/cluster/slurm_fixture.h"

namespace dtrain::test {

std::optional<SlurmLab> SlurmTest::lab_;
std::optional<std::string> SlurmTest::unavailable_;

void SlurmTest::start_lab(int nodes, int cores) {
  unavailable_ = SlurmLab::unavailable();
  try {
    if (!unavailable_) lab_.emplace(nodes, cores);
  } catch (const LabUnavailable& error) {
    unavailable_ = error.what();
  }
}

void SlurmTest::SetUp() {
  if (unavailable_) GTEST_SKIP() << *unavailable_;
  write_small_dataset(folder_ / "data", 500, 50);
}

RunOptions SlurmTest::one_thread() {
  RunOptions options = limited_to(std::chrono::seconds(90));
  options.environment.emplace("OMP_NUM_THREADS", "1");
  return options;
}

}  // namespace dtrain::test
