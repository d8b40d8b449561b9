#include "launcher/watch/progress.h"

#include <algorithm>
#include <utility>

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;

/// Ten looks within the timeout, none more often than is cheap.
Duration look_interval(Duration timeout) {
  return std::clamp<Duration>(timeout / 10, milliseconds(100), milliseconds(10000));
}

constexpr int kAway = 5;  // intervals without a look

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

ProgressWatch::ProgressWatch(int workers, Duration timeout, TimePoint now)
    : workers_(static_cast<std::size_t>(workers)), timeout_(timeout), looked_(now) {
  for (Worker& worker : workers_) worker.active = now;
  if (timeout > Duration::zero()) next_look_ = now + look_interval(timeout);
}

void ProgressWatch::on_output(int index, TimePoint now) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  worker.active = now;
  worker.line = now;
}

void ProgressWatch::on_exit(int index) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  worker.ended = true;
  if (told_) ended_ = true;
}

bool ProgressWatch::got_on(Worker& worker, const std::optional<Usage>& usage, TimePoint now) const {
  const std::optional<Usage> before = std::exchange(worker.usage, usage);
  if (!usage || !before) return true;
  const double seconds = std::max(seconds_of(now - looked_), 1e-3);
  // A child that has ended takes what it used along: that is no work, and no less than none.
  worker.cpu_share = std::max(0.0, usage->cpu_seconds - before->cpu_seconds) / seconds;
  const std::uint64_t bytes = usage->io_bytes - std::min(usage->io_bytes, before->io_bytes);
  return *worker.cpu_share >= kIdleShare ||
         static_cast<double>(bytes) >= static_cast<double>(kIdleBytesPerSecond) * seconds;
}

ProgressWatch::Change ProgressWatch::look(const std::vector<std::optional<Usage>>& usage, TimePoint now) {
  if (!next_look_) return Change::none;
  // Nobody looked for long: the launcher was stopped, and perhaps the workers with it.
  const bool away = now - looked_ > kAway * look_interval(timeout_);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].ended && (got_on(workers_[i], usage[i], now) || away)) workers_[i].active = now;
  }
  looked_ = now;
  next_look_ = now + look_interval(timeout_);
  bool any = false;
  for (std::size_t i = 0; i < workers_.size(); ++i) any = any || hangs(static_cast<int>(i), now);
  if (any == told_) return Change::none;
  told_ = any;
  if (any) return Change::stalled;
  return std::exchange(ended_, false) ? Change::none : Change::resumed;
}

bool ProgressWatch::hangs(int index, TimePoint now) const {
  const Worker& worker = workers_[static_cast<std::size_t>(index)];
  return next_look_ && !worker.ended && now - worker.active >= timeout_;
}

std::vector<std::optional<WorkerProgress>> ProgressWatch::workers(TimePoint now) const {
  std::vector<std::optional<WorkerProgress>> result;
  for (const Worker& worker : workers_) {
    if (worker.ended) {
      result.emplace_back();
      continue;
    }
    WorkerProgress progress{now - worker.active, std::nullopt, worker.cpu_share};
    if (worker.line) progress.since_line = now - *worker.line;
    result.emplace_back(progress);
  }
  return result;
}

}  // namespace dtrain::launcher
