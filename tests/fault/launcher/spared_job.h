// A training job of four nodes and a spare on this machine, whose nodes can be killed and started again.
#pragma once

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/launch/nodes.h"
#include "tests/support/training.h"

namespace dtrain::test {

class SparedJob {
 public:
  static constexpr int kNodes = 4, kPlaces = 5;

  /// Trains for `steps` steps; `more` are arguments of `dtrain train`, `options` the launchers'.
  SparedJob(std::filesystem::path data, std::filesystem::path run_dir, int steps,
            std::vector<std::string> more, std::vector<std::string> options = {})
      : data_(std::move(data)),
        run_dir_(std::move(run_dir)),
        steps_(steps),
        more_(std::move(more)),
        options_(std::move(options)),
        port_(free_port_pair()) {
    for (int place = 0; place < kPlaces; ++place) start(place);
  }

  void start(int place) {
    std::vector<std::string> command{program("dtrain-launch"),
                                     "--nnodes=" + std::to_string(kNodes),
                                     "--spares=1",
                                     "--node-rank=" + std::to_string(place),
                                     "--master-addr=127.0.0.1",
                                     "--master-port=" + std::to_string(port_),
                                     "--nproc-per-node=1",
                                     "--max-restarts=100",
                                     "--shutdown-timeout=1"};
    command.insert(command.end(), options_.begin(), options_.end());
    for (const std::string& word :
         std::vector<std::string>{"dtrain", "train", "--model", "lenet", "--data-dir", data_.string(),
                                  "--global-batch-size", "20", "--log-every", "1", "--eval-every", "0",
                                  "--max-steps", std::to_string(steps_), "--run-dir", run_dir_.string()})
      command.push_back(word);
    command.insert(command.end(), more_.begin(), more_.end());
    launchers_[place] =
        std::make_unique<Running>(command, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}});
  }

  /// The whole machine, as far as the job can tell; from below to above, so that each part sees the end of
  /// those below it before its own.
  void kill(int place) {
    Running& launcher = *launchers_.at(place);
    std::vector<pid_t> all = launcher.marked();
    all.push_back(launcher.pid());
    for (const pid_t pid : all) ::kill(pid, SIGKILL);
    launcher.wait();
  }

  Running& operator[](int place) { return *launchers_.at(place); }
  std::string metrics() const { return text_of(run_dir_ / "metrics.jsonl"); }
  std::size_t steps() const { return count(metrics(), "\"event\":\"step\""); }
  /// Training continues: what is written changes.
  bool trains(std::chrono::milliseconds patience) const {
    const std::string before = metrics();
    return eventually([&] { return metrics() != before; }, patience);
  }
  bool waits_as_spare(int place) {
    return launchers_.at(place)->err().find("will replace the next node") != std::string::npos;
  }
  /// Processes of it that live.
  std::size_t left() const {
    std::size_t left = 0;
    for (const auto& [place, launcher] : launchers_) left += launcher->marked().size();
    return left;
  }
  std::string errors() const {
    std::string text;
    for (const auto& [place, launcher] : launchers_)
      text += "--- " + std::to_string(place) + "\n" + launcher->err();
    return text;
  }
  /// What all launchers have printed.
  std::string output() const {
    std::string text;
    for (const auto& [place, launcher] : launchers_) text += launcher->out() + launcher->err();
    return text;
  }

  static std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path data_, run_dir_;
  int steps_;
  std::vector<std::string> more_, options_;
  int port_;
  std::map<int, std::unique_ptr<Running>> launchers_;
};

}  // namespace dtrain::test
