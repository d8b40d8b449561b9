// A socket gets its name when it listens already: a name that refuses connections is one whose launcher has
// ended.
#include "launcher/control/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cluster/net/token.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegins = "launch-", kEnds = ".sock";
constexpr int kBacklog = 64;
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

sockaddr_un address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path)
    throw UsageError(fmt::format("{}: expected a path of at most {} bytes for a Unix socket, got {}", text,
                                 sizeof address.sun_path - 1, text.size()));
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

UniqueFd make_socket() {
  return UniqueFd(static_cast<int>(
      check(Sys{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, "socket AF_UNIX")));
}

// What connect(2) says of it; EAGAIN: its launcher listens, and has no room in its queue.
int try_to_connect(const UniqueFd& socket, const fs::path& path) {
  const sockaddr_un address = address_of(path);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0
                                                                                                   : errno;
}

bool is_left_behind(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode) && status.st_uid == ::geteuid() &&
         try_to_connect(make_socket(), path) == ECONNREFUSED;
}

std::string random_name() {
  std::uint32_t number = 0;
  fill_random(&number, sizeof number);
  return fmt::format("{:08x}", number);
}

/// "launch-42-0a1b2c3d.sock" is 42's; 0: none of ours.
pid_t pid_in(const std::string& name) {
  if (!name.starts_with(kBegins) || !name.ends_with(kEnds)) return 0;
  const std::string rest = name.substr(kBegins.size());
  return static_cast<pid_t>(parse_integer(rest.substr(0, rest.find('-'))).value_or(0));
}

[[noreturn]] void no_answer(const RunningLauncher& launcher, const std::string& why) {
  throw PeerError(fmt::format("the launcher (pid {}) {}", launcher.pid, why),
                  {.rank = -1, .host = {}, .operation = "ask", .tensor = {}});
}

void wait_for(const UniqueFd& socket, short events, const RunningLauncher& launcher,
              const Deadline& deadline) {
  pollfd wait{socket.get(), events, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, deadline.poll_timeout_ms());
  } while (ready < 0 && errno == EINTR);
  if (ready == 0)
    no_answer(launcher, fmt::format("does not answer: it is stopped or stuck; look at it with: ps -o "
                                    "pid,stat,wchan,args -p {}",
                                    launcher.pid));
}

}  // namespace

std::vector<fs::path> control_folders(const Environment& environment) {
  std::vector<fs::path> folders;
  const auto add = [&folders](const fs::path& folder) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  };
  const std::string* given = find_variable(environment, "XDG_RUNTIME_DIR");
  if (given != nullptr && given->starts_with('/')) add(fs::path(*given) / "dtrain");
  add(fmt::format("/run/user/{}/dtrain", ::geteuid()));
  add(own_user_folder());
  return folders;
}

UniqueFd listen_on_path(const fs::path& path, mode_t mode) {
  const fs::path unfinished = path.string() + "-";  // no name yet that anybody looks for
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !is_left_behind(path))
    throw UsageError(fmt::format("{}: expected a path where nothing is, got {}", path.string(),
                                 S_ISSOCK(status.st_mode) ? "a socket on which another program listens"
                                                          : "something that is no socket"));
  UniqueFd socket = make_socket();
  const sockaddr_un address = address_of(unfinished);
  ::unlink(unfinished.c_str());
  check(Sys{::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address)},
        "bind " + path.string());
  check(Sys{::chmod(unfinished.c_str(), mode)}, "chmod " + path.string());
  check(Sys{::listen(socket.get(), kBacklog)}, "listen " + path.string());
  check(Sys{::rename(unfinished.c_str(), path.c_str())}, "rename to " + path.string());
  return socket;
}

ControlSocket::ControlSocket(const std::vector<fs::path>& folders) : owner_(::getpid()) {
  for (std::size_t i = 0; i < folders.size(); ++i) {
    try {
      make_private_folder(folders[i]);
      path_ = folders[i] / fmt::format("{}{}-{}{}", kBegins, owner_, random_name(), kEnds);
      socket_ = listen_on_path(path_, 0600);
      return;
    } catch (const Error&) {
      if (i + 1 == folders.size()) throw;
    }
  }
}

ControlSocket::~ControlSocket() {
  if (::getpid() == owner_) ::unlink(path_.c_str());
}

std::vector<RunningLauncher> running_launchers(const std::vector<fs::path>& folders) {
  std::vector<RunningLauncher> found;
  for (const fs::path& folder : folders) {
    struct stat status {};
    if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
      continue;
    std::error_code gone;
    for (fs::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone)) {
      const pid_t pid = pid_in(at->path().filename().string());
      if (pid <= 0) continue;
      if (is_left_behind(at->path()))
        ::unlink(at->path().c_str());
      else
        found.push_back({pid, at->path()});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return found;
}

HttpAnswer ask(const RunningLauncher& launcher, const HttpRequest& request, const Deadline& deadline) {
  const UniqueFd socket = make_socket();
  const std::string text = text_of(request, "launcher");
  const int error = try_to_connect(socket, launcher.socket);
  if (error == EAGAIN)
    no_answer(launcher, "does not answer: its queue of requests is full, it is stopped or stuck");
  if (error != 0) no_answer(launcher, fmt::format("has ended ({})", std::strerror(error)));
  if (::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
    no_answer(launcher, "has ended");
  std::string answer;
  while (answer.size() < kMaxAnswerBytes) {
    wait_for(socket, POLLIN, launcher, deadline);
    char bytes[65536];
    const ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) break;
    answer.append(bytes, static_cast<std::size_t>(got));
  }
  const auto read = read_answer(answer);
  if (!read) no_answer(launcher, "has ended before its answer was complete");
  return *read;
}

}  // namespace dtrain::launcher
