// What a running group looks like from outside: for `dtrain-launch status` and for metrics.
#include <signal.h>

#include "launcher/process/group.h"
#include "launcher/system/processes.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kStragglerLook{2};

}  // namespace

void GroupRun::describe(JobStatus& job) {
  if (supervisor_.is_ending()) job.state = "stopping";
  const std::vector<std::optional<Usage>> usage = hang_.usage();
  for (std::size_t i = 0; i < workers_.size(); ++i) job.workers.push_back(status_of(i, usage[i]));
}

WorkerJobStatus GroupRun::status_of(std::size_t local_rank, const std::optional<Usage>& usage) const {
  const WorkerPlan& plan = plan_.workers[local_rank];
  const auto& end = supervisor_.ends()[local_rank];
  WorkerJobStatus worker;
  worker.rank = plan.rank;
  worker.local_rank = plan.local_rank;
  worker.server = plan.server;
  worker.pid = workers_[local_rank].pid;
  worker.device = device_of(plan);
  worker.state = state_of(local_rank);
  if (end) worker.exit_code = exit_code_of(end->status);
  if (settings_.status != nullptr) worker.reported = settings_.status->slot(plan.local_rank).read();
  if (usage) {
    worker.cpu_seconds = usage->cpu_seconds;
    worker.resident_bytes = usage->resident_bytes;
  }
  return worker;
}

ProcessState GroupRun::state_of(std::size_t local_rank) const {
  const Workers::Worker& worker = workers_[local_rank];
  const auto& end = supervisor_.ends()[local_rank];
  if (end) return exit_code_of(end->status) == 0 ? ProcessState::exited : ProcessState::failed;
  if (worker.pid == 0) return ProcessState::not_started;
  const auto process = find_process(worker.pid);
  if (process && (process->state == 'T' || process->state == 't')) return ProcessState::stopped;
  if (hang_.hangs(static_cast<int>(local_rank))) return ProcessState::hanging;
  const bool reports =
      settings_.status != nullptr && settings_.status->slot(static_cast<int>(local_rank)).read().has_value();
  return reports ? ProcessState::reports : ProcessState::running;
}

// Only events need a look without somebody asking.
void GroupRun::look_for_stragglers() {
  const TimePoint now = clock_.now();
  if (!straggler_look_ || now < *straggler_look_) return;
  straggler_look_ = now + kStragglerLook;
  slowness_.resize(workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const auto status = settings_.status->slot(static_cast<int>(i)).read();
    if (!status || supervisor_.ends()[i]) continue;
    const bool changes =
        (status->slowness.phase == StragglerPhase::none) != (slowness_[i].phase == StragglerPhase::none);
    slowness_[i] = status->slowness;
    if (changes) settings_.events->straggler(plan_.workers[i], workers_[i].pid, slowness_[i]);
  }
}

// As SIGUSR1 to the launcher, which may have another meaning there (--signals-to-handle).
std::string GroupRun::ask_for_checkpoint() {
  send(Command::Kind::signal, SIGUSR1);
  if (plan_.program.uses_dtrain)
    return "the workers have been asked for a checkpoint, which they write after the step they are in";
  return "SIGUSR1 was sent to those of the workers' processes that handle it; what it means is up to the "
         "program";
}

}  // namespace dtrain::launcher
