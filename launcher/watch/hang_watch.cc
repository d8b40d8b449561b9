#include "launcher/watch/hang_watch.h"

#include <algorithm>

#include "launcher/output/lines.h"
#include "launcher/watch/nccl_status.h"
#include "runtime/base/environment.h"

namespace dtrain::launcher {
namespace {

/// Where NCCL can be asked; empty where nobody uses it.
std::string nccl_monitor_of(const Plan& plan, const Environment& environment) {
  if (variable_or(environment, "NCCL_RAS_ENABLE", "") == "0") return "";
  const std::string address = variable_or(environment, "NCCL_RAS_ADDR", "");
  if (!address.empty()) return address;
  const bool gpus = std::any_of(plan.workers.begin(), plan.workers.end(),
                                [](const WorkerPlan& worker) { return !worker.gpu.empty(); });
  return gpus ? kNcclMonitor : "";
}

}  // namespace

HangWatch::HangWatch(const HangSettings& settings, const Plan& plan, const Environment& environment,
                     Console& console, const Clock& clock)
    : settings_(settings),
      plan_(plan),
      console_(console),
      clock_(clock),
      nccl_monitor_(nccl_monitor_of(plan, environment)),
      pids_(plan.workers.size(), 0),
      progress_(static_cast<int>(plan.workers.size()),
                settings.on_hang == OnHang::none ? Duration::zero() : Duration(settings.timeout),
                clock.now()) {}

void HangWatch::keep_time() {
  const TimePoint now = clock_.now();
  if (!deadline() || now < *deadline()) return;
  switch (progress_.look(usage_of(pids_), now)) {
    case ProgressWatch::Change::stalled:
      report_.emplace(question(now));
      return;
    case ProgressWatch::Change::resumed:
      console_.say("hang: all workers here make progress again");
      return;
    case ProgressWatch::Change::none:
      return;
  }
}

void HangWatch::print() {
  for (const std::string& line : report_->take()) console_.complain(escape_controls(line));
  report_.reset();
}

HangQuestion HangWatch::question_about_all() const {
  HangQuestion all = question(clock_.now());
  all.stacks = all.asked = true;
  return all;
}

HangQuestion HangWatch::question(TimePoint now) const {
  HangQuestion question;
  question.timeout = settings_.timeout;
  question.stacks = settings_.on_hang == OnHang::stacks;
  question.nccl_monitor = nccl_monitor_;
  const auto workers = progress_.workers(now);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i]) continue;
    const bool hangs = progress_.hangs(static_cast<int>(i), now);
    question.workers.push_back({plan_.workers[i].rank, pids_[i], hangs, *workers[i]});
  }
  return question;
}

}  // namespace dtrain::launcher
