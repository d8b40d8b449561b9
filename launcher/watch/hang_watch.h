// Notices workers of any program that make no progress, and says what they are doing. It only tells: the job
// continues.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/output/console.h"
#include "launcher/plan/plan.h"
#include "launcher/watch/hang_report.h"
#include "launcher/watch/process_facts.h"
#include "launcher/watch/progress.h"

namespace dtrain::launcher {

class HangWatch {
 public:
  /// Watches the plan's workers as its options say. All references must outlive it.
  HangWatch(const HangSettings& settings, const Plan& plan, const Environment& environment, Console& console,
            const Clock& clock);

  void on_start(int local_rank, pid_t pid) { pids_[static_cast<std::size_t>(local_rank)] = pid; }
  void on_output(int local_rank) { progress_.on_output(local_rank, clock_.now()); }
  void on_exit(int local_rank) { progress_.on_exit(local_rank); }

  /// When keep_time() has something to do next; empty when never.
  std::optional<TimePoint> deadline() const { return progress_.next_look(); }
  /// To be polled for reading; -1 when there is nothing to wait for.
  int fd() const noexcept { return report_ ? report_->fd() : -1; }
  /// Looks at the workers when it is time, and begins a report when they hang.
  void keep_time();
  /// fd() is readable: prints the report.
  void print();
  /// What to ask of all workers for somebody who wants to know now, with their stacks.
  HangQuestion question_about_all() const;
  bool hangs(int local_rank) const { return progress_.hangs(local_rank, clock_.now()); }
  /// As usage_of(), by local rank.
  std::vector<std::optional<Usage>> usage() const { return usage_of(pids_); }

 private:
  HangQuestion question(TimePoint now) const;

  HangSettings settings_;
  const Plan& plan_;
  Console& console_;
  const Clock& clock_;
  std::string nccl_monitor_;
  std::vector<pid_t> pids_;  // 0: not started yet
  ProgressWatch progress_;
  std::optional<PendingHangReport> report_;
};

}  // namespace dtrain::launcher
