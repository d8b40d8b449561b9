// A sweep at work: starts runs where there is a place, notes how they end, stops when asked to.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "worker/sweep/folder.h"
#include "worker/sweep/jobs.h"
#include "worker/sweep/places.h"
#include "worker/sweep/show.h"

namespace dtrain::sweep {

struct RunnerOptions {
  std::string launcher;              ///< path of dtrain-launch
  std::vector<std::string> program;  ///< and what it starts, before a run's own options
  int workers = 1;                   ///< of each run
  int max_restarts = 0;              ///< of a run whose workers fail
  bool stop_on_failure = false;
  std::string metric = {};  ///< asked for; a sweep whose first run does not give it ends; empty: none
  Environment environment;
};

/// How a sweep ended.
struct SweepEnd {
  std::size_t failed = 0;      ///< runs, those of earlier starts included
  std::size_t unfinished = 0;  ///< runs that are resumed when the sweep is started again
  std::optional<int> signal;   ///< it was told to stop
  std::string wrong_metric;    ///< why it ended early (wrong_metric()); empty: it did not
};

class Runner {
 public:
  /// All are borrowed; `folder` is open.
  Runner(const SweepFolder& folder, const std::vector<Run>& runs, std::vector<Place> places,
         const RunnerOptions& options, Show& show);

  /// Works until all runs have ended, or a signal or, if so asked, a failure stops it: then each job's
  /// workers get SIGTERM (a second signal: at once), write a checkpoint and end. Throws SystemError.
  SweepEnd work();

 private:
  struct Active {
    const Run* run = nullptr;
    TimePoint since;
  };
  void take_stock();
  void start_more();
  void start(int place, const Run& run);
  void take_ends();
  void end(int place, int status);
  void check_metric();
  void take_signals();
  void stop(int signal);
  Job job_of(int place, const Run& run) const;
  RunEnd judge(const Run& run, int status, double seconds) const;
  bool goes_on(int status) const;

  const SweepFolder& folder_;
  const std::vector<Run>& runs_;
  std::vector<Place> places_;
  const RunnerOptions& options_;
  Show& show_;
  Jobs jobs_;
  std::deque<const Run*> waiting_;
  std::vector<Active> active_;  // by place
  SweepEnd result_;
  std::size_t done_ = 0;
  bool stopping_ = false;
};

/// Why a run failed, from what its launcher and workers printed: the last line of the worker's, else of the
/// launcher's. Pure.
std::string cause_in(const std::string& log);

}  // namespace dtrain::sweep
