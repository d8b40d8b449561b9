// A node's address from Slurm: what scontrol prints, and every way in which it can fail to.
#include "cluster/detect/slurm_node.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using std::chrono::seconds;

TEST(SlurmNode, TheAddressIsReadFromOneLine) {
  EXPECT_EQ(
      parse_node_address("NodeName=gpu001 Arch=x86_64 NodeAddr=10.1.2.3 NodeHostName=box Version=22.05"),
      "10.1.2.3");
  EXPECT_EQ(parse_node_address("NodeName=gpu001 NodeAddr=10.1.2.3\n"), "10.1.2.3");
  EXPECT_EQ(parse_node_address("NodeName=gpu001 XNodeAddr=9.9.9.9 NodeAddr=10.1.2.3"), "10.1.2.3");
}

TEST(SlurmNode, NoAddressIsNone) {
  EXPECT_EQ(parse_node_address(""), std::nullopt);
  EXPECT_EQ(parse_node_address("Node gpu001 not found"), std::nullopt);
  EXPECT_EQ(parse_node_address("NodeName=gpu001 NodeAddr= X=1"), std::nullopt);
  EXPECT_EQ(parse_node_address("NodeName=gpu001 NodeAddr=(null)"), std::nullopt);
  // Slurm repeats the name where nothing else is configured: no news.
  EXPECT_EQ(parse_node_address("NodeName=gpu001 NodeAddr=gpu001"), std::nullopt);
}

class Scontrol : public ::testing::Test {
 protected:
  void SetUp() override {
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", (folder_.path().string() + ":" + old_path_).c_str(), 1);
  }
  void TearDown() override { ::setenv("PATH", old_path_.c_str(), 1); }
  void answer(const std::string& script) {
    test::write_file(folder_ / "scontrol", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(folder_ / "scontrol", std::filesystem::perms::owner_all);
  }

  test::TempDir folder_;
  std::string old_path_;
};

TEST_F(Scontrol, IsAskedForTheNode) {
  answer("[ \"$1 $2 $4\" = 'show node --oneliner' ] && echo \"NodeName=$3 NodeAddr=127.0.0.7\"");
  EXPECT_EQ(slurm_node_address("gpu001", Deadline::after(seconds(10))), "127.0.0.7");
}

TEST_F(Scontrol, ThatFailsOrHangsIsNotKnown) {
  answer("echo NodeName=a NodeAddr=127.0.0.7; exit 1");
  EXPECT_EQ(slurm_node_address("a", Deadline::after(seconds(10))), std::nullopt);
  answer("exec sleep 100");
  EXPECT_EQ(slurm_node_address("a", Deadline::after(std::chrono::milliseconds(100))), std::nullopt);
}

TEST_F(Scontrol, IsOnlyAskedWhenTheNameDoesNotResolve) {
  answer("touch " + (folder_ / "asked").string() + "; echo NodeName=$3 NodeAddr=127.0.0.7");
  Placement placement;
  placement.system = JobSystem::slurm;
  placement.master_addr = "127.0.0.1";
  use_reachable_master(placement, seconds(10));
  EXPECT_EQ(placement.master_addr, "127.0.0.1");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "asked"));
  placement.master_addr = "no-such-host.invalid";
  use_reachable_master(placement, seconds(10));
  EXPECT_EQ(placement.master_addr, "127.0.0.7");
  EXPECT_NE(placement.explanations["master_addr"].find("NodeAddr"), std::string::npos);
}

}  // namespace
}  // namespace dtrain
