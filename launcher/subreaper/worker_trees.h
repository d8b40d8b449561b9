// Who of the processes below the subreaper belongs to which worker, and whom of them a signal goes to: a
// worker is its first process and what that has started. Pure state, fed with what /proc shows. See
// docs/decisions/047-a-worker-is-a-tree.md.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "launcher/system/processes.h"

namespace dtrain::launcher {

/// A process, and the signal that it is to get.
struct Addressed {
  Process process;
  int signal = 0;
};

class WorkerTrees {
 public:
  using MannerOf = std::function<Manner(const Process&, int signal)>;

  /// `subreaper` is the parent of every first process and of every orphan.
  WorkerTrees(pid_t subreaper, int workers, MannerOf manner_of);

  /// The worker's first process leads a session of its own.
  void on_start(int worker, pid_t first);
  /// The worker's first process has ended and been reaped.
  void on_end(int worker);

  /// What is below the subreaper now, parents before children. To be called before anything is asked below.
  void look(std::vector<Process> below);

  /// Of those below: what is alive and belongs to the worker, its first process left out.
  std::vector<Process> started_by(int worker) const;
  /// A process of a worker's, its first one left out, that has been stopped, or runs again (or has ended).
  struct Stop {
    int worker = 0;
    Process process;
    bool continued = false;
  };
  /// Those since the last call. Of a subtree that is stopped as a whole, only the top.
  std::vector<Stop> take_stops();

  /// Of those below: what workers that have ended left in their own sessions. What has moved to a session of
  /// its own, as daemons do, is not among it.
  std::vector<std::pair<int, Process>> in_background() const;

  /// A signal that ends the job: everything may be asked again.
  void begin_ending(int signal);
  /// Who of those below is to get that signal now. Each process is returned once. First a worker's first
  /// process; below one that handles the signal nobody is told before that has ended, since it may need what
  /// it has started. Below any other (a shell, which passes nothing on), everybody is, but for what it has
  /// started since (a trap's commands): that is how it ends; and for what would die beside one that handles
  /// the signal, as the `tee` that it prints to, before that has ended.
  std::vector<Addressed> to_end();

  /// Who of a worker's is to get a signal that asks for something (SIGUSR1): as with to_end(), but nobody who
  /// would die of it. Empty: nobody takes it, not yet perhaps.
  std::vector<Addressed> to_tell(int worker, int signal) const;
  bool is_running(int worker) const;

 private:
  struct Known {
    int worker = kNobody;
    std::optional<Manner> manner;  // of one that has been asked to end, as it was then
    bool was_there = false;        // when the job was told to end
  };
  using Key = std::pair<pid_t, std::uint64_t>;
  /// Whom a round of to_end() has come across.
  struct Round {
    struct Found {
      Process process;
      int signal = 0;
      Manner manner = Manner::dies;
      bool leads = false;  // to one that handles the signal
    };
    std::vector<Found> found;    // not asked yet
    int handlers = 0;            // alive, asked or not
    std::set<int> with_handler;  // workers that have one
  };
  static constexpr int kNobody = -1;
  static Key key_of(const Process& process) { return {process.pid, process.started}; }

  int owner_of(const Process& process, const std::map<pid_t, int>& by_pid) const;
  bool is_first(const Process& process) const;
  std::vector<const Process*> children_of(pid_t parent) const;
  bool end_from(const Process& process, bool orphaned, Round& round) const;
  std::vector<Addressed> ask(const Round& round);
  bool tell_from(const Process& process, int signal, std::vector<Addressed>& told) const;

  pid_t subreaper_;
  MannerOf manner_of_;
  std::vector<pid_t> firsts_;      // of the workers; stays when it has ended, as the number of the session
  std::vector<bool> running_;      // the first process is
  std::map<pid_t, int> sessions_;  // and process groups: whose they are
  std::map<Key, Known> known_;     // of those below
  std::map<Key, Stop> stopped_;    // that were reported
  std::vector<Process> below_;
  int signal_ = 0;
};

}  // namespace dtrain::launcher
