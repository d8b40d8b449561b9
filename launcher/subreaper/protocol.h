// What the launcher and its subreaper tell each other over a seqpacket socket: fixed-size messages, each
// whole or not at all.
#pragma once

#include <cstdint>

namespace dtrain::launcher {

/// Subreaper, and guard once there is no subreaper → launcher.
struct Event {
  enum class Kind : std::int32_t {
    started,       ///< value: pid
    exec_failed,   ///< value: errno; an `exited` follows
    exited,        ///< value: wait status; `emptied` follows where it ran
    exited_alone,  ///< the same, and nothing of it is left: no `emptied` follows
    stopped,  ///< value: pid of a process of the worker's that has been stopped; detail: the signal, 0 where
              ///< only its parent was told
    continued,  ///< value: pid of such a process, which runs again or has ended
    emptied,    ///< nothing of a worker that has ended is left
    leftover,   ///< value: pid of a process that a worker left in the background; `leftovers` follows
    leftovers,  ///< all workers have ended; value: how many processes they left in the background, or 0 where
                ///< all that is left has moved to sessions of its own; worker is -1
    swept,      ///< value: how many processes workers had left behind; worker is -1
    fenced,     ///< the lease is over: all workers are being killed; worker is -1
    stuck,      ///< value: pid of a process that cannot be ended; worker is -1
    held,       ///< the subreaper stands still and is being taken the place of; worker is -1
    left,       ///< value: wait status of a process that the subreaper has not reaped; worker is its pid
    unable,     ///< subreaper or guard could not begin; value: errno; worker is -1
  };
  Kind kind;
  std::int32_t worker;
  std::int64_t value;
  std::int64_t detail;  ///< with `exited`: the largest resident set in KiB; see `stopped`
};

/// What is to be done about the workers: by the subreaper, where the launcher sends it there, else by the
/// launcher.
struct Command {
  enum class Kind : std::int32_t {
    none,
    // To the subreaper:
    signal,  ///< `value`. SIGSTOP and SIGCONT: to every worker's process group; SIGUSR1 and SIGUSR2: to those
             ///< who take it; any other asks all to end (WorkerTrees)
    kill_all,     ///< SIGKILL to every descendant until none is left
    start_again,  ///< the worker `value`, which has ended; only where SpawnRequest::may_return
    // To the launcher, from the other nodes:
    end,  ///< this start is over: SIGTERM, and SIGKILL after the grace; `value` 1: without it, only a worker
          ///< that is writing a checkpoint is waited for
    // To the launcher, by its own rules:
    await_saving,       ///< nothing yet: a worker is writing a checkpoint
    await_leftovers,    ///< nothing yet: the workers have left processes that get their time
    replace_subreaper,  ///< it has not ended the workers; who stands behind it is to do so
    give_up,            ///< nobody can end them
  };
  Kind kind = Kind::none;
  std::int32_t value = 0;
};

}  // namespace dtrain::launcher
