// The one folder a run writes to, and the names in it. Rank 0 creates it and tells the others the path.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>

namespace dtrain {

/// Names of what is in a run's folder. Knows paths only; nothing is kept open.
class RunDirectory {
 public:
  /// For a folder that exists or that another rank creates. Touches nothing.
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  /// Creates `path` with checkpoints/ and logs/ in it and checks that it can be written and has room for
  /// `bytes_needed`. A folder that is there already is taken over, so that a run can resume in it. Rank 0
  /// only. Throws UsageError when a file is in the way, SystemError when it cannot be written.
  static RunDirectory create(const std::filesystem::path& path, std::uint64_t bytes_needed = 0);

  /// "runs/20260131-142501-lenet" for local time `now`; "-2", "-3", … is appended while the name is taken.
  static std::filesystem::path default_path(const std::string& model, std::time_t now,
                                            const std::filesystem::path& parent = "runs");

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path config() const { return path_ / "config.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path summary() const { return path_ / "summary.json"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path logs() const { return path_ / "logs"; }
  /// For the report: the first training pictures; the confusion matrix and worst mistakes of the last
  /// evaluation.
  std::filesystem::path batch() const { return path_ / "batch.json"; }
  std::filesystem::path evaluation() const { return path_ / "evaluation.json"; }
  std::filesystem::path report() const { return path_ / "report.html"; }

  /// Write JSON text (nlohmann's dump(2)) as config.json or summary.json, atomically. Throw SystemError.
  void write_config(const std::string& json_text) const;
  void write_summary(const std::string& json_text) const;

 private:
  std::filesystem::path path_;
};

/// The run in `folder` whose metrics were written last; empty where there is none.
std::filesystem::path newest_run(const std::filesystem::path& folder = "runs");

}  // namespace dtrain
