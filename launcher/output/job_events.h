// What happens to a job, as lines of JSON for programs: --events. The schema is docs/events.schema.json.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launcher/output/log_file.h"
#include "launcher/output/report.h"
#include "launcher/plan/plan.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/worker_status.h"

namespace dtrain::launcher {

class JobEvents {
 public:
  static constexpr int kSchema = 1;
  /// A line is waited for this long at most: a launcher that is killed then has written it, and a disk that
  /// hangs holds up nothing.
  static constexpr Duration kPatience = std::chrono::milliseconds(25);
  static constexpr Duration kLastPatience = std::chrono::seconds(1);  ///< of the last line

  /// A start of the workers, as it is told.
  struct Start {
    std::string run_id;
    int round = 0;  ///< of the job's starts, from 0
    int restart_count = 0;
  };

  /// Writes nothing.
  JobEvents() = default;
  /// Appends to the file `to`, or writes to the open descriptor of that number, which no worker inherits.
  /// `host` is this machine's name. Throws UsageError when there is no such descriptor, SystemError when the
  /// file cannot be opened.
  JobEvents(const std::string& to, std::string host);

  bool on() const noexcept { return file_ != nullptr; }

  /// The workers of `plan` are about to start.
  void start(const Plan& plan, const Start& start, std::uint16_t master_port);
  void worker_start(const WorkerPlan& worker, pid_t pid);
  /// All workers of the job have met, this long after their start.
  void ready(Duration after);
  /// `status` as wait(2) has it; `log_file` may be empty.
  void worker_exit(const WorkerPlan& worker, pid_t pid, int status, long max_rss_kib,
                   const std::string& log_file);
  /// A worker begins to be slower than those of the other ranks, or is so no more (phase none).
  void straggler(const WorkerPlan& worker, pid_t pid, const Slowness& slowness);
  /// The job is asked to end.
  void signal(int number);
  /// Why it ends or starts again; of a worker of this node, with what worker_exit() knew.
  void failure(const Failure& failure);
  void restart(int restart_count, int max_restarts);
  /// The launcher's last event. `error`: of the launcher itself; empty: none.
  void end(int exit_code, const std::string& error = {});

  /// What people should know since the last call: that events are lost.
  std::optional<std::string> take_news();

 private:
  struct Exit {
    int local_rank = 0;
    pid_t pid = 0;
    int status = 0;
    std::string log_file;
  };
  class Record;

  void write(const Record& line);

  std::unique_ptr<LogFile> file_;
  std::string host_;
  TimePoint began_ = steady_clock().now();
  std::optional<Start> start_;  ///< the newest
  int node_rank_ = 0;
  std::map<int, Exit> exits_;  ///< of this start, by rank
};

}  // namespace dtrain::launcher
