// What may be asked of a running launcher, and its answers: `dtrain-launch status`, `stop`, `save` and
// `stacks` over a Unix socket of this user's, and a job's metrics for monitoring.
//
//     GET /status                       JobStatus as JSON
//     GET /metrics                      as OpenMetrics text; on every socket
//     POST /stop, /save, /stacks        a line of text, or several
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/control/control_socket.h"
#include "launcher/control/http_server.h"
#include "launcher/control/job_status.h"
#include "launcher/output/console.h"
#include "launcher/output/job_events.h"
#include "launcher/plan/options.h"
#include "launcher/watch/hang_report.h"

namespace dtrain::launcher {

/// The workers that run now, as the control sees them.
class RunningWorkers {
 public:
  virtual ~RunningWorkers() = default;
  /// Fills in the workers, and the job's state where that is not "running".
  virtual void describe(JobStatus& job) = 0;
  /// Asks the workers for a checkpoint; says what was done, for people.
  virtual std::string ask_for_checkpoint() = 0;
  /// What to ask for their stacks.
  virtual HangQuestion question_about_all() = 0;

 protected:
  RunningWorkers() = default;
  RunningWorkers(const RunningWorkers&) = default;
  RunningWorkers& operator=(const RunningWorkers&) = default;
};

class JobControl {
 public:
  /// `about`: what is known before workers run.
  JobControl(JobStatus about, const LaunchOptions& options);
  ~JobControl();
  JobControl(const JobControl&) = delete;
  JobControl& operator=(const JobControl&) = delete;

  /// Opens the sockets, whose names go with this: signals that would end the process are to be blocked by
  /// then. Where this user has no folder for one, `console` says so. Throws UsageError for a --metrics-listen
  /// that cannot be meant or is taken.
  void listen(const LaunchOptions& options, const Environment& environment, Console& console);

  /// Readable when serve() has something to do.
  int fd() const noexcept { return server_.fd(); }
  /// Answers what has been asked. Never blocks for longer than a look through /proc.
  void serve();

  /// The workers of `plan` are about to start.
  void start(const Plan& plan, const JobEvents::Start& start);
  /// They run, until end_of_workers(); borrowed meanwhile.
  void run_workers(RunningWorkers& workers) noexcept { workers_ = &workers; }
  void end_of_workers() noexcept { workers_ = nullptr; }

  JobStatus status();

 private:
  void open_socket(const Environment& environment, Console& console);
  void listen_for_metrics(const LaunchOptions& options, Console& console);
  HttpAnswer answer(const HttpRequest& request, Audience audience);
  HttpAnswer obey(const std::string& path);
  void ask_for_stacks(HttpServer::Id id);
  void give_stacks();

  JobStatus about_;
  TimePoint began_ = steady_clock().now();
  HttpServer server_;
  std::optional<ControlSocket> socket_;
  std::filesystem::path metrics_path_;  ///< of a Unix socket; empty: none
  RunningWorkers* workers_ = nullptr;
  std::optional<PendingHangReport> stacks_;
  std::vector<HttpServer::Id> stacks_asked_;  ///< who waits for them
};

}  // namespace dtrain::launcher
