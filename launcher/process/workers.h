// The workers of one start on this node: how each is started, where its output goes, and what can be reported
// of it when it has failed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/control/job_control.h"
#include "launcher/output/capture.h"
#include "launcher/output/job_events.h"
#include "launcher/output/report.h"
#include "launcher/plan/plan.h"
#include "launcher/process/other_nodes.h"
#include "launcher/process/supervisor.h"
#include "launcher/subreaper/spawn.h"
#include "launcher/watch/hang_watch.h"
#include "runtime/base/files/worker_status.h"

namespace dtrain::launcher {

struct GroupSettings {
  Policy policy;
  HangSettings hang;
  bool passthrough = false;
  std::string log_folder;  ///< of this start; used when the plan writes files
  std::string log_mark;    ///< begins what is appended to a log file of an earlier job
  std::vector<std::string> stdout_filters, stderr_filters;  ///< see LaunchOptions
  std::vector<std::string> scratch_folders;  ///< removed by the subreaper when the launcher is killed
  std::span<char> title;
  OtherNodes* others = nullptr;  ///< nullptr: there are none, and no lease
  JobEvents* events = nullptr;   ///< never nullptr while workers run, nor is `control`
  JobControl* control = nullptr;
  const StatusPage* status = nullptr;  ///< nullptr: the workers say nothing of themselves
};

class Workers {
 public:
  struct Worker {
    Capture out, err;
    pid_t pid = 0;
    int exec_error = 0;
    long max_rss_kib = 0;
    bool gone = false;  ///< and all that it started
  };

  /// Opens pipes and log files. All references must outlive it. Throws SystemError, and UsageError when
  /// another job writes to a log file.
  Workers(const Plan& plan, const Attempt& attempt, const GroupSettings& settings, Console& console,
          const Clock& clock);

  Worker& operator[](std::size_t local_rank) { return all_[local_rank]; }
  const Worker& operator[](std::size_t local_rank) const { return all_[local_rank]; }
  std::size_t size() const { return all_.size(); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  /// How to start each. `has_keyboard`: what is typed on our terminal is meant for rank 0.
  std::vector<SpawnRequest> requests(const Environment& environment, bool has_keyboard) const;
  /// They have their streams: lets go of our copies.
  void started();

  /// The others cannot continue without it: rank 0 is where they meet, and keeps the run's records; and until
  /// a worker has met the others, they wait for it.
  bool is_needed(int local_rank) const;
  /// The rank of one whose file says that it is writing a checkpoint.
  std::optional<int> saving_rank() const;
  /// Of one that has failed: with this wait status, and perhaps as a `consequence` of another's failure.
  Failure failure_of(int local_rank, int status, bool consequence) const;
  /// Takes what is left of all streams. Log files get a little time for their last bytes, unless somebody
  /// `is_hurried`.
  void finish_output(const std::function<bool()>& is_hurried);

 private:
  std::unique_ptr<FilteredLog> open_filtered(const char* name, const std::vector<std::string>& texts) const;
  Worker open_worker(const WorkerPlan& worker);
  SpawnRequest request_for(const WorkerPlan& worker, const Environment& environment, int null_fd,
                           bool has_keyboard) const;
  Environment terminal_environment(const WorkerPlan& worker) const;
  bool shows_progress(const WorkerPlan& worker) const;
  bool inherits_stdout(const WorkerPlan& worker) const;

  const Plan& plan_;
  const Attempt& attempt_;
  const GroupSettings& settings_;
  Console& console_;
  const Clock& clock_;
  UniqueFd null_;
  OomKills oom_before_;
  std::unique_ptr<FilteredLog> filtered_out_, filtered_err_;
  std::vector<Worker> all_;
};

}  // namespace dtrain::launcher
