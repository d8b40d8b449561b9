// Runs scontrol under a deadline; every way in which that can fail means "not known".
#include "cluster/detect/slurm_node.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cctype>

#include "cluster/net/endpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostOutput = 64 * 1024;

// Starts `argv` with its standard output going to `out`; -1 when there is no such program.
pid_t start(const char* const* argv, int out) {
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
  const int code =
      ::posix_spawnp(&pid, argv[0], &actions, &attributes, const_cast<char* const*>(argv), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return code == 0 ? pid : -1;
}

// What comes until the end of the stream; nothing when `deadline` passes first.
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
  return text;
}

bool can_be_used(const std::string& host, const Deadline& deadline) {
  try {
    resolve({host, 0}, deadline);
  } catch (const Error&) {
    return false;
  }
  return !is_loopback_name(host, deadline);
}

}  // namespace

std::optional<std::string> parse_node_address(std::string_view text) {
  const auto value_of = [&](std::string_view key) -> std::string_view {
    std::size_t at = text.find(key);
    while (at != std::string_view::npos && at > 0 &&
           std::isspace(static_cast<unsigned char>(text[at - 1])) == 0)
      at = text.find(key, at + 1);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + key.size());
    return rest.substr(0, rest.find_first_of(" \t\r\n"));
  };
  const std::string_view address = value_of("NodeAddr=");
  if (address.empty() || address == "(null)" || address == value_of("NodeName=")) return std::nullopt;
  return std::string(address);
}

std::optional<std::string> slurm_node_address(const std::string& node, const Deadline& deadline) {
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe for scontrol");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const char* const argv[] = {"scontrol", "show", "node", node.c_str(), "--oneliner", nullptr};
  const pid_t pid = start(argv, write_end.get());
  write_end.reset();
  if (pid < 0) return std::nullopt;
  const auto text = read_all(read_end.get(), deadline);
  if (!text) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return text && status == 0 ? parse_node_address(*text) : std::nullopt;
}

void use_reachable_master(Placement& placement, Duration patience) {
  if (placement.system != JobSystem::slurm || !placement.master_addr) return;
  if (can_be_used(*placement.master_addr, Deadline::after(patience))) return;
  const auto address = slurm_node_address(*placement.master_addr, Deadline::after(patience));
  if (!address) return;
  placement.explanations["master_addr"] +=
      fmt::format("; '{}' does not resolve to an address that others reach, Slurm has {} as its NodeAddr",
                  *placement.master_addr, *address);
  placement.master_addr = address;
}

}  // namespace dtrain
