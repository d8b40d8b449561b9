// One start of the group: pipes, subreaper, and the poll loop that watches subreaper, signals, output and
// deadlines until every worker and all that workers started have ended.
#pragma once

#include <poll.h>

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "launcher/process/leftovers.h"
#include "launcher/process/signals.h"
#include "launcher/process/terminal.h"
#include "launcher/process/workers.h"
#include "launcher/subreaper/protocol.h"
#include "launcher/subreaper/subreaper.h"

namespace dtrain::launcher {

class GroupRun final : private RunningWorkers {
 public:
  /// Opens pipes and log files and starts the workers. All references must outlive the run. `store_socket` is
  /// handed to rank 0 (see Attempt) and closed here. Throws SystemError; then nothing is left running.
  GroupRun(const Plan& plan, const Attempt& attempt, const Environment& environment,
           const GroupSettings& settings, Signals& signals, Console& console, UniqueFd store_socket,
           const Clock& clock = steady_clock());
  ~GroupRun() { settings_.control->end_of_workers(); }
  GroupRun(const GroupRun&) = delete;
  GroupRun& operator=(const GroupRun&) = delete;

  /// Watches until all have ended.
  GroupResult run();

 private:
  // As the control sees them.
  void describe(JobStatus& job) override;
  std::string ask_for_checkpoint() override;
  HangQuestion question_about_all() override { return hang_.question_about_all(); }
  WorkerJobStatus status_of(std::size_t local_rank, const std::optional<Usage>& usage) const;
  ProcessState state_of(std::size_t local_rank) const;

  void wait_for_news();
  void take_signals();
  void take_stop_signal(int signal);
  void take_commands();
  void obey(const Command& command);
  void tell_failure();
  Failure failure_of(int local_rank) const;
  void take_events();
  void take_event(const Event& event);
  void take_event_of_group(const Event& event);
  void take_end(int local_rank, const Event& event);
  void tell_stop(const Event& event);
  void tell_loss(int local_rank);
  std::optional<Duration> longest_wait() const;
  void read_output(std::span<const pollfd> waits);
  void keep_time();
  void carry_out(const Command& command, int count = 0);
  void send(Command::Kind kind, int value);
  void suspend();
  void subreaper_has_ended();
  void give_up();
  void pass_on(int signal);
  void look_whether_ready();
  void look_for_stragglers();

  const Plan& plan_;
  const Attempt& attempt_;
  const GroupSettings& settings_;
  Signals& signals_;
  Console& console_;
  const Clock& clock_;
  Workers workers_;
  Supervisor supervisor_;
  HangWatch hang_;
  Terminal terminal_;
  Subreaper subreaper_;
  std::set<int> passed_on_;         // signals that workers have had because of the job's end
  std::optional<int> told_failed_;  // local rank that was reported to the other nodes
  bool ended_by_others_ = false;    // the other nodes ended this start
  bool subreaper_ended_ = false, subreaper_lost_ = false, given_up_ = false, fenced_ = false;
  std::optional<int> subreaper_error_;
  std::vector<std::string> stuck_;
  Leftovers leftovers_;
  const TimePoint began_;
  std::optional<TimePoint> ready_look_;      // empty: all have met, or nobody wants to know
  std::optional<TimePoint> straggler_look_;  // empty: nobody wants to know
  std::vector<Slowness> slowness_;           // by local rank, as it was told
};

}  // namespace dtrain::launcher
