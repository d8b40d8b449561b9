// A training job on the hosts of a lab, one launcher a host, and what can be seen of it from outside.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cluster/labs.h"
#include "tests/launch/running.h"
#include "tests/support/training.h"

namespace dtrain::test {

class LabJob {
 public:
  /// `nnodes` as the launcher's option. One worker a host trains a small network for `steps` steps into
  /// `folder`/run.
  LabJob(const NetnsLab& lab, const TempDir& folder, std::string nnodes, int steps)
      : lab_(&lab),
        folder_(&folder),
        nnodes_(std::move(nnodes)),
        steps_(steps),
        mark_(folder.path().string()) {
    if (!std::filesystem::exists(folder / "data")) write_small_dataset(folder / "data", 1000, 100);
  }

  /// Starts (or starts again) the launcher of `host`.
  void start(int host, const std::vector<std::string>& more = {}) {
    std::vector<std::string> argv = {program("dtrain-launch"),
                                     "--nnodes=" + nnodes_,
                                     "--node_rank=" + std::to_string(host),
                                     "--master_addr=" + NetnsLab::address(0),
                                     "--master_port=29500",
                                     "--nproc_per_node=1"};
    argv.insert(argv.end(), more.begin(), more.end());
    for (const std::string& argument : std::vector<std::string>{
             "dtrain", "train", "--model", "lenet", "--data-dir", (*folder_ / "data").string(),
             "--global-batch-size", "50", "--log-every", "1", "--eval-every", "0", "--checkpoint-every", "7",
             "--max-steps", std::to_string(steps_), "--log-samples", "--run-dir", run_dir().string()})
      argv.push_back(argument);
    launchers_[host] = std::make_unique<Running>(
        lab_->command(host, argv),
        std::map<std::string, std::string>{
            {"DTRAIN_TOKEN", std::string(64, 'a')}, {"OMP_NUM_THREADS", "1"}, {"DTRAIN_TEST_JOB", mark_}});
  }

  Running& launcher(int host) { return *launchers_.at(host); }
  std::filesystem::path run_dir() const { return *folder_ / "run"; }
  std::size_t steps_done() const {
    return std::filesystem::exists(run_dir() / "metrics.jsonl") ? losses_or_none().size() : 0;
  }
  bool reaches(std::size_t steps, std::chrono::seconds patience = std::chrono::seconds(60)) const {
    return eventually([&] { return steps_done() >= steps; }, patience);
  }
  /// Every process of the job, on whatever host.
  int processes() const { return count_marked("DTRAIN_TEST_JOB", mark_); }
  /// Living workers by rank. Two with one rank would show as one; see writers().
  std::map<int, pid_t> workers() const { return ranks_marked("DTRAIN_TEST_JOB", mark_); }

 private:
  // The last line may be half written.
  std::vector<double> losses_or_none() const {
    try {
      return losses(run_dir());
    } catch (const std::exception&) {
      return {};
    }
  }

  const NetnsLab* lab_;
  const TempDir* folder_;
  std::string nnodes_;
  int steps_;
  std::string mark_;
  std::map<int, std::unique_ptr<Running>> launchers_;
};

}  // namespace dtrain::test
