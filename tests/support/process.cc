#include "tests/support/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "tests/support/slowness.h"

namespace dtrain::test {
namespace {

struct Pipe {
  UniqueFd read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe2");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

[[noreturn]] void exec_child(const std::vector<std::string>& argv, const RunOptions& options, int in, int out,
                             int err) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  default_signals();
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0) ::_exit(126);
  std::vector<char*> arguments;
  for (const auto& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "exec %s: %s\n", arguments[0], std::strerror(errno));
  ::_exit(127);
}

// Reads both streams until they close or the deadline passes.
void collect(UniqueFd& out, UniqueFd& err, RunResult& result, const Deadline& deadline) {
  pollfd streams[] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
  std::string* texts[] = {&result.out, &result.err};
  while ((streams[0].fd >= 0 || streams[1].fd >= 0) && !deadline.expired()) {
    if (::poll(streams, 2, deadline.poll_timeout_ms()) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (streams[i].fd < 0 || streams[i].revents == 0) continue;
      char chunk[65536];
      const ssize_t got = ::read(streams[i].fd, chunk, sizeof chunk);
      if (got > 0) texts[i]->append(chunk, static_cast<std::size_t>(got));
      if (got == 0) streams[i].fd = -1;
    }
  }
}

// The kill below would otherwise read as somebody else's: exit code 137, as of a worker or for want of
// memory.
void fail_by_limit(const std::string& what, std::chrono::seconds limit, const std::string& last_words = "") {
  ADD_FAILURE() << what << ": expected it to end by itself, was ended by the test's own limit of "
                << limit.count() << " s" << (last_words.empty() ? "" : "; it had printed to stderr:\n")
                << last_words;
}

// Waits for `child` to end without reaping anything else; false when the deadline passed first.
bool wait_until(pid_t child, const Deadline& deadline, int& status) {
  while (true) {
    if (::waitpid(child, &status, WNOHANG) == child) return true;
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void default_signals() noexcept {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT}) ::signal(signal, SIG_DFL);
}

RunResult run(const std::vector<std::string>& argv, const RunOptions& options) {
  const std::chrono::seconds limit = options.timeout * kSlowness;
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (child == 0) exec_child(argv, options, in.read_end.get(), out.write_end.get(), err.write_end.get());
  in.read_end.reset();
  out.write_end.reset();
  err.write_end.reset();
  if (!options.standard_input.empty()) {
    check(Sys{::write(in.write_end.get(), options.standard_input.data(), options.standard_input.size())},
          "write stdin");
  }
  in.write_end.reset();

  RunResult result;
  const Deadline deadline = Deadline::after(limit);
  std::thread companion;
  if (options.while_running) companion = std::thread(options.while_running, child);
  collect(out.read_end, err.read_end, result, deadline);
  int status = 0;
  if (!wait_until(child, deadline, status)) {
    ::kill(-child, SIGKILL);
    ::waitpid(child, &status, 0);
    std::string command;
    for (const std::string& word : argv) command += (command.empty() ? "" : " ") + word;
    fail_by_limit(command, limit, result.err);
  }
  if (companion.joinable()) companion.join();
  result.exit_code = code_of(status);
  return result;
}

std::string program(const std::string& name) {
  const char* folder = std::getenv("DTRAIN_BIN");
  if (folder == nullptr)
    throw UsageError("DTRAIN_BIN: expected the folder of the built programs, got nothing; run through ctest");
  return std::string(folder) + "/" + name;
}

std::vector<std::string> launch_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program("dtrain-launch"));
  return arguments;
}

RunResult launch(const std::vector<std::string>& arguments, const RunOptions& options) {
  return run(launch_command(arguments), options);
}

namespace {

// Calls `found(pid, environment)` for each live process whose environment can be read and holds `entry`.
void for_each_marked(const std::string& entry, const std::function<void(pid_t, const std::string&)>& found) {
  for (const auto& item : std::filesystem::directory_iterator("/proc")) {
    const std::string name = item.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(item.path() / "environ", std::ios::binary);
    std::string environment(std::istreambuf_iterator<char>(file), {});
    environment.insert(environment.begin(), '\0');
    if (environment.find('\0' + entry + '\0') != std::string::npos) found(std::stoi(name), environment);
  }
}

}  // namespace

std::map<int, pid_t> ranks_marked(const std::string& name, const std::string& value,
                                  const std::string& variable) {
  std::map<int, pid_t> ranks;
  const std::string before = std::string(1, '\0') + variable + "=";
  for_each_marked(name + "=" + value, [&](pid_t pid, const std::string& environment) {
    const auto at = environment.find(before);
    if (at != std::string::npos) ranks[std::atoi(environment.c_str() + at + before.size())] = pid;
  });
  return ranks;
}

int count_marked(const std::string& name, const std::string& value) {
  int count = 0;
  for_each_marked(name + "=" + value, [&](pid_t, const std::string&) { ++count; });
  return count;
}

std::vector<int> run_ranks(int world, const std::function<void(int rank)>& body,
                           std::chrono::seconds timeout) {
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      int code = 0;
      try {
        body(rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        code = 1;
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
    children.push_back(child);
  }
  const std::chrono::seconds limit = timeout * kSlowness;
  const Deadline deadline = Deadline::after(limit);
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    if (!wait_until(child, deadline, status)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      fail_by_limit("rank " + std::to_string(codes.size()) + " of " + std::to_string(world), limit);
    }
    codes.push_back(code_of(status));
  }
  return codes;
}

}  // namespace dtrain::test
