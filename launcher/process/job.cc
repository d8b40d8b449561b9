// A job on one node: starts, reports, restarts.
#include "launcher/process/job.h"

#include <chrono>

#include "cluster/rendezvous/restart_progress.h"
#include "launcher/plan/examination.h"
#include "launcher/process/attempts.h"

namespace dtrain::launcher {

std::int64_t now_in_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string run_id_of(const Job& job, std::int64_t launch_time_ns) {
  return job.options.run_id.empty() ? made_run_id(launch_time_ns) : job.options.run_id;
}

int run_job(const Job& job, Console& console) {
  Attempts attempts(job, console);
  const NodeShare share = equal_share(job.placement, count_workers(job.options, job.hardware));
  const Plan plan = make_plan(job.options, job.placement, share, job.program, job.environment, job.hardware);
  MasterPorts master(plan.program.uses_dtrain, job.options.agent_store);
  Attempts::Start start;
  start.launch_time_ns = now_in_ns();
  if (job.program.uses_dtrain) start.token = (job.token ? *job.token : make_token()).hex();
  rendezvous::RestartProgress progress(job.options.max_stalled_restarts);
  for (;; ++start.number, ++start.restart_count) {
    if (!job.options.health_check.empty()) {
      const LaunchOptions options = examination_options(job.options);
      const Plan examination = make_plan(options, job.placement, share, examination_program(options),
                                         job.environment, job.hardware);
      console.say("examining this node (--health-check)");
      Attempts::Start first = start;
      if (first.token.empty()) first.token = make_token().hex();
      const GroupResult found =
          attempts.run(examination, first, master.settle(plan.master_addr, plan.master_port));
      attempts.report(found);
      if (const int code = Attempts::exit_code(found); code != 0 || found.signal) return code;
      ++start.number;
    }
    const GroupResult result = attempts.run(plan, start, master.settle(plan.master_addr, plan.master_port));
    attempts.report(result);
    const bool again = result.failure && !result.signal && result.stuck.empty() &&
                       start.restart_count < job.options.max_restarts;
    if (!again) return Attempts::exit_code(result);
    progress.failed_at(result.step);
    if (progress.stalled()) {
      console.complain(progress.text() + "; the job ends with the cause above");
      return Attempts::exit_code(result);
    }
    job.events->restart(start.restart_count + 1, job.options.max_restarts);
    console.say("restarting the group: restart " + std::to_string(start.restart_count + 1) + " of " +
                std::to_string(job.options.max_restarts));
  }
}

}  // namespace dtrain::launcher
