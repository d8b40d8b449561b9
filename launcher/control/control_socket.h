// Where a running launcher is found and asked: a Unix socket of this user's alone, in the user's folder for
// things that run. It is there as long as the launcher; one that a kill -9 has left is recognised and
// removed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/control/http.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// The folders in which launchers of this user have their sockets, the preferred one first:
/// $XDG_RUNTIME_DIR/dtrain, /run/user/<user id>/dtrain, /tmp/dtrain-<user id>. All are looked at, since a
/// batch system or cron may have set no XDG_RUNTIME_DIR for the job.
std::vector<std::filesystem::path> control_folders(const Environment& environment);

class ControlSocket {
 public:
  /// Listens in the first of `folders` that can be used, mode 0600. Throws the error of the last one.
  explicit ControlSocket(const std::vector<std::filesystem::path>& folders);
  /// Removes the name.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  UniqueFd take() noexcept { return std::move(socket_); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd socket_;
  pid_t owner_;
};

/// A launcher that runs.
struct RunningLauncher {
  pid_t pid = 0;
  std::filesystem::path socket;
};

/// Those that listen in `folders`, by pid. Removes the sockets that nobody listens on any more.
std::vector<RunningLauncher> running_launchers(const std::vector<std::filesystem::path>& folders);

/// Sends `request` and waits for the answer. Throws PeerError when the launcher has ended, or does not answer
/// until `deadline`; says so with its pid.
HttpAnswer ask(const RunningLauncher& launcher, const HttpRequest& request, const Deadline& deadline);

/// A listening Unix socket at `path` with this mode; a socket that nobody listens on is replaced. Throws
/// UsageError when the path is too long, or something else is there; SystemError.
UniqueFd listen_on_path(const std::filesystem::path& path, mode_t mode);

}  // namespace dtrain::launcher
