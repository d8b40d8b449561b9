// Decides what happens to a group of workers: pure state, fed with ends, signals and the time, answering with
// what to do next. Owns no process and reads no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/output/report.h"
#include "launcher/subreaper/protocol.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// How a worker ended.
struct WorkerEnd {
  int status = 0;  ///< as wait(2) has it
  TimePoint at{};
};

/// What became of one start of the group.
struct GroupResult {
  int exit_code = 0;
  std::optional<int> first_failed;      ///< local rank of the root cause; empty when nothing failed by itself
  std::optional<int> signal;            ///< the job was ended by this signal from outside
  std::optional<Failure> failure = {};  ///< of first_failed
  bool fenced = false;                  ///< the lease ran out, and subreaper or guard have ended the workers
  bool subreaper_lost = false;          ///< it ended before its workers, which have been ended
  std::optional<int> subreaper_error = {};  ///< errno of what kept it from its work; empty: it was killed
  std::int64_t step = -1;               ///< the last one that a worker has finished; below 0: they do not say
  std::vector<std::string> stuck = {};  ///< processes that could not be ended, not even by SIGKILL, in words
};

struct Policy {
  Duration failure_grace{};  ///< SIGTERM to SIGKILL after a failure
  Duration signal_grace{};   ///< from a forwarded signal to SIGKILL
  Duration saving_grace{};   ///< so much longer for a worker that is writing a checkpoint
  bool own_codes = false;  ///< the workers are dtrain's: 75 is an orderly end, 4 the consequence of another's
  /// The last so many are parameter servers: other workers that are killed end nobody else, unless the
  /// others fail for it.
  int servers = 0;
  int returns = 0;  ///< how many such workers may be started again by themselves
};

class Supervisor {
 public:
  Supervisor(int workers, Policy policy);

  /// Worker `local_rank` ended with `status`. `needed`: the others cannot continue without it, servers or
  /// not.
  Command on_exit(int local_rank, int status, TimePoint now, bool needed = false);
  /// All workers have ended, and something that they started has not: `in_background` processes, or such that
  /// have moved to sessions of their own, where that is 0. What runs in the background of a job that ended
  /// well gets the time that it would get after a signal, anything else is asked to end. To be called again
  /// when nothing in the background is left.
  Command on_leftovers(int in_background, TimePoint now);
  /// A signal that ends the job arrived. The first is forwarded, the next one kills; copies that come within
  /// kEcho of the first count as one (a terminal, `timeout` and batch systems may signal a process twice).
  Command on_signal(int signal, TimePoint now);
  /// The other nodes have ended this start: SIGTERM, then SIGKILL after `grace`.
  Command on_stop(TimePoint now, Duration grace);
  /// Nothing may continue here.
  Command on_kill(TimePoint now);
  /// To be called when deadline() has passed; `saving`: a worker says that it is writing a checkpoint.
  Command on_time(TimePoint now, bool saving = false);
  std::optional<TimePoint> deadline() const { return deadline_; }

  int running() const { return running_; }
  /// The workers have been asked to end, by whatever it was.
  bool is_ending() const { return ending_ || signal_; }
  const std::vector<std::optional<WorkerEnd>>& ends() const { return ends_; }
  /// The worker whose failure explains the others' as far as is known; empty when none failed by itself.
  std::optional<int> root_cause() const;
  /// When a lost worker is to be started again: not before it is clear that the others continue without it.
  std::optional<TimePoint> return_due() const;
  /// The worker to be started again now; each once.
  std::optional<int> take_return(TimePoint now);
  /// Worker `local_rank`, who was lost, has been started again.
  void on_return(int local_rank);
  /// Whether this worker was killed and the others were left to continue.
  bool is_lost(int local_rank) const;
  /// Whether this failed worker only reported that it had lost a peer.
  bool is_consequence(int local_rank) const;
  /// Code, cause and signal; meaningful once running() is 0, or after give_up.
  GroupResult result() const;

  static constexpr std::chrono::milliseconds kEcho{50};
  static constexpr std::chrono::milliseconds kLookAgain{200};  ///< whether the checkpoint has been written
  static constexpr std::chrono::seconds kAfterSaving{2};       ///< for the worker to end by itself then
  static constexpr std::chrono::seconds kReturn{2};            ///< until a lost worker is started again
  static constexpr std::chrono::seconds kMissed{
      3};  ///< a failure so soon after a worker was lost is for that
  static constexpr std::chrono::seconds kInsist{
      3};  ///< SIGKILL without effect for this long: perhaps the subreaper itself is stopped
  static constexpr std::chrono::seconds kGiveUp{
      10};  ///< SIGKILL without effect for this long: stuck in the kernel
  static constexpr std::chrono::seconds kInsistOnLeftovers{
      12};  ///< the same, once all workers have ended: the subreaper names what is stuck before

 private:
  bool is_failure(int status) const;
  bool ended_by_signal(int status) const;
  Command kill(TimePoint now);
  bool can_be_spared(int local_rank, int status) const;
  void count_losses(TimePoint now);
  int running_workers() const;
  bool waits_for_saving(TimePoint now, bool saving);
  bool all_gone() const { return running_ == 0 && !left_; }
  Command end_leftovers(TimePoint now);

  Policy policy_;
  int running_;
  std::vector<std::optional<WorkerEnd>> ends_;
  std::vector<int> failures_;  // local ranks in the order of their ends
  int returns_ = 0;            // asked for so far
  std::vector<int> awaited_;   // of lost_, those that were not asked for
  std::vector<int> lost_;      // the same, of workers that were killed in a job with servers
  std::optional<int> signal_;
  TimePoint signal_at_{};
  bool ending_ = false, killing_ = false, insisting_ = false;
  bool left_ = false;   // all workers have ended, but not what they started
  bool waits_ = false;  // for that
  std::optional<TimePoint> deadline_;
  std::optional<TimePoint> saving_until_;  // at most
  bool saved_ = false;
};

}  // namespace dtrain::launcher
