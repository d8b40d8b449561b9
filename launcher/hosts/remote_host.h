// One host of a job that --hosts starts: the process that leads there (ssh, or the proxy itself on this
// machine), its three pipes, and how far it has come.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "launcher/hosts/host_list.h"
#include "launcher/hosts/launch_request.h"
#include "launcher/output/console.h"
#include "launcher/output/lines.h"
#include "launcher/subreaper/spawn.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

class RemoteHost {
 public:
  enum class State { connecting, greeted, running, ended };
  /// A line of the host's, of its stderr where `to_err`.
  using TakeLine = std::function<void(RemoteHost& host, bool to_err, const TextLine& line)>;

  /// `place`: in the list, from 0.
  RemoteHost(HostEntry entry, int place, TakeLine take_line);
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;
  /// Kills the process.
  ~RemoteHost();

  const HostEntry& entry() const noexcept { return entry_; }
  const std::string& name() const noexcept { return entry_.name; }
  int place() const noexcept { return place_; }

  /// Starts the process, whose standard streams become pipes. To be called with all signals blocked. Throws
  /// SystemError.
  void start(SpawnRequest request, const Inherited& inherited);
  /// Queues a line for the proxy's stdin and writes what goes.
  void send(const std::string& line);
  /// Writes more of what waits. Never blocks.
  void flush();
  bool unsent() const noexcept { return !queue_.empty(); }
  /// To poll: -1 where nothing (more) comes or goes.
  int in_fd() const noexcept { return unsent() ? in_.get() : -1; }
  int out_fd() const noexcept { return streams_[0].fd.get(); }
  int err_fd() const noexcept { return streams_[1].fd.get(); }
  /// Reads what is there, as far as it goes without blocking.
  void read(bool to_err);
  /// Shows unfinished lines after which nothing has come for a while.
  void keep_time();
  std::optional<TimePoint> due() const;
  /// Closes the proxy's stdin, which ends the host's launcher.
  void hang_up() noexcept { in_.reset(); }
  /// As hang_up(), and ends the process that leads there.
  void kill();
  /// Reaps the process when it has ended. It is ended() when its output has, too, or has not a second later.
  void reap();
  bool ended() const noexcept { return state_ == State::ended; }

  State state() const noexcept { return state_; }
  void set_state(State state) noexcept { state_ = state; }
  /// What its proxy has said.
  std::optional<ProxyGreeting> greeting;
  std::optional<int> exit_code;  ///< of the launcher there; unset at the end: the connection was lost
  std::optional<int> killed_by;  ///< the signal that has ended the launcher there
  std::optional<std::string> failure;
  /// "ssh ended with exit code 255", once it has.
  std::string how_it_ended() const;
  /// One stream as the console knows it.
  const Speaker& speaker(bool to_err) const noexcept { return streams_[to_err ? 1 : 0].speaker; }

 private:
  struct Stream {
    UniqueFd fd;
    LineSplitter lines{false};  // the launcher there has done with carriage returns
    Speaker speaker;
    std::optional<TimePoint> due;
  };
  void finish(bool to_err);

  HostEntry entry_;
  int place_;
  TakeLine take_line_;
  State state_ = State::connecting;
  pid_t pid_ = -1;
  std::string program_;
  std::optional<int> status_;
  std::optional<TimePoint> reaped_at_;
  UniqueFd in_;
  std::string queue_;
  Stream streams_[2];
};

}  // namespace dtrain::launcher
