// A job of one node from start to end: starts the group of workers, watches it in one poll loop, reports,
// and starts it again as often as allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cluster/net/token.h"
#include "launcher/control/job_control.h"
#include "launcher/output/console.h"
#include "launcher/output/job_events.h"
#include "launcher/plan/options.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/plan.h"
#include "launcher/subreaper/spawn.h"

namespace dtrain::launcher {

struct Job {
  LaunchOptions options;
  NodePlacement placement;
  Program program;
  Hardware hardware;
  Environment environment;      ///< the launcher's own, handed on to the workers
  std::optional<Token> token;   ///< the job's secret, where one was given
  std::string version;          ///< of this build, the same on every node
  JobEvents* events = nullptr;  ///< not null while the job runs, nor is `control`; borrowed
  JobControl* control = nullptr;
  std::span<char> title;  ///< argv's memory; the subreaper puts its own name there
};

/// Wall-clock time in nanoseconds since 1970.
std::int64_t now_in_ns();

/// Its name, which --rdzv-id gives, or else the time of its launch.
std::string run_id_of(const Job& job, std::int64_t launch_time_ns);

/// Runs the job of one node and returns its exit code: 0 when all workers ended well, the first failed
/// worker's (128 + signal where a signal killed it), 128 + signal when the job was ended from outside, 75
/// when workers ask to be started again. What is to be said goes to `console`. To be called from the main
/// thread of a process with no other threads and no children; blocks the signals it handles and reaps all
/// children. Throws UsageError (a taken port, too few descriptors) and SystemError before anything was
/// started.
int run_job(const Job& job, Console& console);

}  // namespace dtrain::launcher
