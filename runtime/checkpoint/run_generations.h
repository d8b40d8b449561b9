// Who may be believed of those who wrote to a run: each start of training has a number, and says before it
// writes anything else after which step it resumes. What an earlier start writes of later steps after that is
// not the run's. See docs/decisions/006-checkpoints.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

namespace dtrain {

/// The starts of a run, as `starts.jsonl` in its folder of checkpoints has them.
class RunGenerations {
 public:
  /// Those that `checkpoints` has; none where there is no such file. Lines that a kill has torn are left out.
  /// Throws SystemError.
  static RunGenerations read(const std::filesystem::path& checkpoints);

  /// The number of the last one; 0: there was none.
  std::int64_t newest() const noexcept { return after_step_.empty() ? 0 : after_step_.rbegin()->first; }
  /// The first start after `start` that resumed from a step before `step`; 0: none, so that what `start`
  /// wrote of `step` is part of the run. What has no number is of start 0.
  std::int64_t superseded_by(std::int64_t start, std::int64_t step) const noexcept;
  /// Writes down that another start resumes after `step`, durably. Returns its number, which is not
  /// among these. For the one writer of
  /// the run. Throws SystemError.
  std::int64_t begin(const std::filesystem::path& checkpoints, std::int64_t step) const;

 private:
  std::map<std::int64_t, std::int64_t> after_step_;  ///< by number
};

/// The entry of TrainingState::extra that names the start which made a checkpoint.
inline constexpr const char* kStartEntry = "start";

}  // namespace dtrain
