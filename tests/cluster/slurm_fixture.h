// What tests against a Slurm cluster on this machine share.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "tests/cluster/labs.h"
#include "tests/support/training.h"

namespace dtrain::test {

/// Tests against one Slurm cluster, of two nodes with four cores each if nothing else is said, and a small
/// dataset in folder_/data.
class SlurmTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { start_lab(2, 4); }
  static void start_lab(int nodes, int cores);
  static void TearDownTestSuite() { lab_.reset(); }
  void SetUp() override;

  /// 90 s and one thread a worker: the last digits depend on the number of threads, and the defaults of srun
  /// and the launcher may differ.
  static RunOptions one_thread();

  static std::optional<SlurmLab> lab_;
  static std::optional<std::string> unavailable_;
  TempDir folder_;
};

}  // namespace dtrain::test
