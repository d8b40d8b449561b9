#include "cluster/detect/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostOutput = 64 * 1024;

// Starts `argv` with its standard output going to `out`; -1 when there is no such program.
pid_t start(const std::vector<std::string>& argv, int out) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  sigset_t none;  // the caller may hold signals back; its child must not
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int code = ::posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return code == 0 ? pid : -1;
}

// What comes until the end of the stream; nothing when that is too much, or `deadline` passes first.
std::optional<std::string> read_all(int fd, const Deadline& deadline) {
  std::string text;
  while (text.size() < kMostOutput) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, deadline.poll_timeout_ms()) == 0) return std::nullopt;
    char chunk[4096];
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) return std::nullopt;
    if (got > 0) text.append(chunk, static_cast<std::size_t>(got));
    if (deadline.expired()) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& argv, const Deadline& deadline) {
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe for " + argv.front());
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = start(argv, write_end.get());
  write_end.reset();
  if (pid < 0) return std::nullopt;
  const auto text = read_all(read_end.get(), deadline);
  if (!text) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0 ? text : std::nullopt;
}

}  // namespace dtrain
