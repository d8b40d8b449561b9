// Forks, and reads /proc.
#include "tests/bench/rendezvous/server_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "runtime/base/check.h"

namespace dtrain::bench {
namespace {

constexpr rlim_t kMostFiles = 1U << 18;  // for the connections of the most launchers that a job can have

}  // namespace

std::size_t raise_open_files() {
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  const rlimit all{kMostFiles, kMostFiles};
  if (limit.rlim_max < kMostFiles && ::setrlimit(RLIMIT_NOFILE, &all) == 0) return kMostFiles;
  limit.rlim_cur = limit.rlim_max;
  check(Sys{::setrlimit(RLIMIT_NOFILE, &limit)}, "setrlimit RLIMIT_NOFILE");
  return limit.rlim_cur;
}

ServerProcess::ServerProcess(const rendezvous::ServerOptions& options) {
  Listener listener = listen_on("0.0.0.0", 0, Deadline::after(std::chrono::seconds(5)));
  port_ = listener.port();
  pid_ = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  raise_open_files();
  const rendezvous::RendezvousServer rendezvous(std::move(listener), options);
  while (true) ::pause();
}

ServerProcess::~ServerProcess() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

double ServerProcess::cpu_seconds() const {
  std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
  std::string text;
  std::getline(stat, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  // utime and stime are the 14th and 15th of all.
  for (int i = 3; i < 14; ++i) fields >> skipped;
  long user = 0, system = 0;
  fields >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double status_mib(pid_t pid, const char* field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(field, 0) == 0) return std::stod(line.substr(line.find(':') + 1)) / 1024;
  }
  return 0;
}

double ServerProcess::peak_mib() const { return status_mib(pid_, "VmHWM"); }
double ServerProcess::resident_mib() const { return status_mib(pid_, "VmRSS"); }

}  // namespace dtrain::bench
