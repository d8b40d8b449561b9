#include "tests/launch/running.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "tests/support/process.h"
#include "tests/support/slowness.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

std::string next_mark() {
  static std::atomic<int> counter{0};
  return "DTRAIN_TEST_MARK=" + std::to_string(::getpid()) + "." + std::to_string(counter++);
}

struct Process {
  pid_t pid;
  char state;
  pid_t parent;
  std::string name;
};

std::vector<Process> all_processes() {
  std::vector<Process> list;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string folder = entry.path().filename();
    if (folder.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    Process process{std::stoi(folder), 0, 0, line.substr(open + 1, close - open - 1)};
    std::istringstream rest(line.substr(close + 1));
    rest >> process.state >> process.parent;
    list.push_back(process);
  }
  return list;
}

pid_t child_of(pid_t parent, const std::string& name) {
  for (const Process& process : all_processes()) {
    if (process.parent == parent && process.name == name) return process.pid;
  }
  return 0;
}

bool carries(pid_t pid, const std::string& mark) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::string entry;
  while (std::getline(file, entry, '\0')) {
    if (entry == mark) return true;
  }
  return false;
}

}  // namespace

Running::Running(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment)
    : mark_(next_mark()) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  variables.push_back(mark_);
  std::vector<char*> arguments, pointers;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : variables) pointers.push_back(const_cast<char*>(variable.c_str()));
  arguments.push_back(nullptr);
  pointers.push_back(nullptr);
  const std::string out = folder_ / "out", err = folder_ / "err";
  pid_ = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (pid_ > 0) return;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  default_signals();
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
  ::execve(arguments[0], arguments.data(), pointers.data());
  ::_exit(127);
}

Running::~Running() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : marked()) ::kill(pid, SIGKILL);
}

void Running::signal(int number) const { ::kill(pid_, number); }

int Running::wait(std::chrono::milliseconds timeout) {
  int status = 0;
  if (!ended_ && eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, timeout)) {
    ended_ = true;
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return code_;
}

std::string Running::out() const { return fs::exists(folder_ / "out") ? read_file(folder_ / "out") : ""; }
std::string Running::err() const { return fs::exists(folder_ / "err") ? read_file(folder_ / "err") : ""; }

std::vector<pid_t> Running::marked() const {
  std::vector<pid_t> found;
  for (const Process& process : all_processes()) {
    if (process.pid != pid_ && process.state != 'Z' && process.state != 'X' && carries(process.pid, mark_))
      found.push_back(process.pid);
  }
  return found;
}

pid_t Running::child(const std::string& name) const { return child_of(pid_, name); }

pid_t Running::subreaper() const {
  const pid_t between = guard();
  return between == 0 ? 0 : child_of(between, "subreaper");
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout * kSlowness);
  while (true) {
    if (condition()) return true;
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int free_port() {
  const UniqueFd socket(static_cast<int>(check(Sys{::socket(AF_INET, SOCK_STREAM, 0)}, "socket")));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  check(Sys{::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length)}, "bind");
  check(Sys{::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length)}, "getsockname");
  return ntohs(address.sin_port);
}

int rounds_from_environment(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  int rounds = otherwise;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), rounds);
  return rounds > 0 ? rounds : otherwise;
}

}  // namespace dtrain::test
