// One start of the group: pipes, keeper, and the poll loop that watches keeper, signals, output and deadlines
// until every worker and all that workers started have ended.
#pragma once

#include <poll.h>

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "launcher/output/capture.h"
#include "launcher/output/report.h"
#include "launcher/plan/plan.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/round_link.h"
#include "launcher/process/signals.h"
#include "launcher/process/supervisor.h"
#include "launcher/process/terminal.h"
#include "launcher/subreaper/protocol.h"
#include "launcher/subreaper/subreaper.h"
#include "launcher/watch/hang_watch.h"

namespace dtrain::launcher {

struct GroupSettings {
  Policy policy;
  HangSettings hang;
  bool passthrough = false;
  std::string log_folder;                    ///< of this start; used when the plan writes files
  std::vector<std::string> scratch_folders;  ///< removed by the keeper when the launcher is killed
  std::span<char> title;
  RoundLink* link = nullptr;  ///< to the other nodes; nullptr: there are none, and no lease
};

struct GroupResult {
  Outcome outcome;
  std::optional<WorkerFailure> failure;  ///< of outcome.first_failed
  bool fenced = false;                   ///< the lease ran out, and keeper or guard have ended the workers
  bool keeper_lost = false;              ///< the keeper was killed; its workers have been ended
  std::vector<std::string> stuck;        ///< processes that could not be ended, not even by SIGKILL, in words
};

class GroupRun {
 public:
  /// Opens pipes and log files and starts the workers. All references must outlive the run. `store_socket` is
  /// handed to rank 0 (see Attempt) and closed here. Throws SystemError; then nothing is left running.
  GroupRun(const Plan& plan, const Attempt& attempt, const Environment& environment,
           const GroupSettings& settings, Signals& signals, Console& console, UniqueFd store_socket,
           const Clock& clock = steady_clock());

  /// Watches until all have ended.
  GroupResult run();

 private:
  struct Worker {
    Capture out, err;
    pid_t pid = 0;
    int exec_error = 0;
    long max_rss_kib = 0;
    bool gone = false;  // and all that it started
  };

  Worker open_worker(const WorkerPlan& worker);
  SpawnRequest request_for(const WorkerPlan& worker, const Environment& environment, int null_fd) const;
  Environment terminal_environment(const WorkerPlan& worker) const;
  bool shows_progress(const WorkerPlan& worker) const;
  bool inherits_stdout(const WorkerPlan& worker) const;

  void wait_for_news();
  void settle_files();
  void take_signals();
  void take_stop_signal(int signal);
  void take_orders();
  void take_order(const RoundLink::Order& order);
  void tell_failure();
  void take_events();
  void take_event(const Event& event);
  void take_end(int local_rank, const Event& event);
  void tell_stop(int local_rank, int signal);
  bool is_needed(int local_rank) const;
  void tell_loss(int local_rank);
  std::optional<Duration> longest_wait() const;
  void read_output(std::span<const pollfd> waits);
  void keep_time();
  std::optional<int> saving_rank() const;
  void carry_out(const Action& action);
  void command(Command::Kind kind, int signal);
  void suspend();
  void keeper_has_ended();
  void give_up();
  WorkerFailure failure_of(int local_rank, const OomKills& now) const;
  void pass_on(int signal);

  const Plan& plan_;
  const Attempt& attempt_;
  const GroupSettings& settings_;
  Signals& signals_;
  Console& console_;
  const Clock& clock_;
  OomKills oom_before_;
  std::vector<Worker> workers_;
  Supervisor supervisor_;
  HangWatch hang_;
  Terminal terminal_;
  Keeper keeper_;
  std::set<int> passed_on_;         // signals that workers have had because of the job's end
  std::optional<int> told_failed_;  // local rank that the other nodes were told of
  bool ordered_ = false;            // the other nodes ended this start
  bool keeper_ended_ = false, keeper_lost_ = false, given_up_ = false, fenced_ = false;
  std::vector<std::string> stuck_;
  Leftovers leftovers_;
};

}  // namespace dtrain::launcher
