// --health-check on hosts of their own, one of which is sick: it is kept out, named, and replaced by a spare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "tests/cluster/labs.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

// Three nodes and a spare; h1 is the sick one.
class Health : public ::testing::Test {
 protected:
  static constexpr int kHosts = 4, kSick = 1;

  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_ = std::make_unique<NetnsLab>(kHosts);
    // What the links can do is decided by them rather than by this machine's processors.
    for (int host = 0; host < kHosts; ++host) limit(host, "320mbit");
  }

  void limit(int host, const std::string& rate) {
    const RunResult result =
        run({"env", "DTRAIN_NETNS_LAB=t" + std::to_string(::getpid()), "bash",
             std::string(DTRAIN_LABS) + "/netns.sh", "limit", "h" + std::to_string(host), rate});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  // All launchers of a job; those of `sick` hosts with `sickness` in their environment.
  void start(const Variables& sickness, const std::vector<std::string>& program_of_job,
             const Variables& all = {}, int workers = 1) {
    for (int host = 0; host < kHosts; ++host) {
      std::vector<std::string> argv = {program("dtrain-launch"),
                                       "--nnodes=3",
                                       "--spares=1",
                                       "--max-restarts=2",
                                       "--node_rank=" + std::to_string(host),
                                       "--master_addr=" + NetnsLab::address(0),
                                       "--nproc_per_node=" + std::to_string(workers),
                                       "--health-check=" + folder_.path().string()};
      argv.insert(argv.end(), program_of_job.begin(), program_of_job.end());
      Variables environment = {
          {"DTRAIN_TOKEN", std::string(64, 'a')}, {"OMP_NUM_THREADS", "1"}, {"DTRAIN_SECONDS", "0.5"}};
      environment.insert(all.begin(), all.end());
      if (host == kSick) environment.insert(sickness.begin(), sickness.end());
      launchers_.push_back(std::make_unique<Running>(lab_->command(host, argv), environment));
    }
  }

  std::string errors() {
    std::string text;
    for (int host = 0; host < kHosts; ++host) text += "--- h" + std::to_string(host) + "\n" + at(host).err();
    return text;
  }
  Running& at(int host) { return *launchers_[static_cast<std::size_t>(host)]; }

  // The job runs on h0, h3 and h2, and everybody knows why.
  void expect_kept_out(const std::string& reason) {
    EXPECT_EQ(at(kSick).wait(seconds(120)), 2) << errors();
    for (const int host : {0, 2, 3}) EXPECT_EQ(at(host).wait(seconds(120)), 0) << errors();
    EXPECT_THAT(at(kSick).err(), AllOf(HasSubstr("is kept out of this job: "), HasSubstr(reason)));
    EXPECT_THAT(at(0).err(), AllOf(HasSubstr("node_rank 1 (host h1"), HasSubstr("is kept out of this job: "),
                                   HasSubstr(reason)));
    EXPECT_EQ(at(kSick).out(), "");
    EXPECT_EQ(at(3).out(), "rank 1 of 3\n") << errors();
  }

  const std::vector<std::string> show_ = {"sh", "-c", "echo rank $RANK of $WORLD_SIZE"};
  TempDir folder_;  // in memory (TMPDIR), where disks are alike
  std::unique_ptr<NetnsLab> lab_;
  std::vector<std::unique_ptr<Running>> launchers_;
};

TEST_F(Health, AHealthyJobStartsAsItIs) {
  start({}, show_);
  for (const int host : {0, 1, 2, 3}) EXPECT_EQ(at(host).wait(seconds(120)), 0) << errors();
  EXPECT_EQ(at(kSick).out(), "rank 1 of 3\n") << errors();
  EXPECT_EQ(at(3).out(), "");
  EXPECT_THAT(at(0).err(), AllOf(HasSubstr("examining the nodes"), Not(HasSubstr("kept out"))));
}

TEST_F(Health, ASlowDisk) {
  start({{"LD_PRELOAD", std::getenv("DTRAIN_FAILING_CALLS")},
         {"DTRAIN_FAIL", "write,*dtrain-doctor*,1,0,30ms"}},
        show_);
  expect_kept_out("disk write ");
}

TEST_F(Health, HalfTheBandwidth) {
  limit(kSick, "160mbit");
  start({}, show_);
  expect_kept_out("link ");
}

TEST_F(Health, AWrongClock) {
  start({{"LD_PRELOAD", std::getenv("DTRAIN_WRONG_CLOCK")}, {"DTRAIN_CLOCK_OFFSET", "-90"}}, show_);
  expect_kept_out("clock -");
}

TEST_F(Health, AGpuThatFails) {
  if (!std::filesystem::exists(program("../lib/libdtrain_cuda_emulated.so")))
    GTEST_SKIP() << "built without the emulated CUDA machine (ninja dtrain_cuda_emulated)";
  start({{"DTRAIN_EMULATED_FAULTS", "launch=ecc"}}, show_, {{"DTRAIN_EMULATED_GPUS", "1"}});
  expect_kept_out("this node is unfit: ");
}

// Each node's two GPUs reduce together; the sick one's links are slow, and nothing else.
TEST_F(Health, GpusThatReduceSlowly) {
  if (!std::filesystem::exists(program("../lib/libdtrain_cuda_emulated.so")))
    GTEST_SKIP() << "built without the emulated CUDA machine (ninja dtrain_cuda_emulated)";
  start({{"DTRAIN_EMULATED_FAULTS", "links=slow:30#1"}},
        {"sh", "-c", "[ $LOCAL_RANK = 1 ] || echo rank $((RANK / 2)) of $((WORLD_SIZE / 2))"},
        {{"DTRAIN_EMULATED_GPUS", "2"}}, 2);
  expect_kept_out("GPU all_reduce ");
}

// It was well at the start.
TEST_F(Health, ANodeThatHasBecomeSickIsKeptOutAtTheRestart) {
  const std::string trigger = folder_ / "sick";
  start({}, {"sh", "-c",
             "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || { echo rank $RANK of $WORLD_SIZE; exit 0; }; "
             "echo up >&2; while [ ! -e " +
                 trigger + " ]; do sleep 0.1; done; [ $RANK = 2 ] && exit 7; exec sleep 60"});
  for (const int host : {0, 1, 2})
    ASSERT_TRUE(eventually([&] { return at(host).err().find("up\n") != std::string::npos; }, seconds(60)))
        << errors();
  limit(kSick, "160mbit");
  write_file(trigger, "");
  expect_kept_out("link ");
  EXPECT_THAT(at(0).err(), HasSubstr("exit code 7"));
}

}  // namespace
}  // namespace dtrain::test
