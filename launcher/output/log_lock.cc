// flock on a descriptor of its own, which the kernel gives up with the last process that has it, however it
// ends.
#include "launcher/output/log_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::milliseconds kLookAgain{20};

// " by pid 42", from lines such as "1: FLOCK  ADVISORY  WRITE 42 08:01:1234 0 EOF"; empty when it is not
// told.
std::string holder_of(const struct stat& status) {
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    std::istringstream words(line);
    std::string number, kind, how, access, pid, file;
    words >> number >> kind >> how >> access >> pid >> file;
    if (kind == "FLOCK" && file.ends_with(fmt::format(":{}", status.st_ino)) && pid != "-1")
      return fmt::format(" by pid {}", pid);
  }
  return "";
}

}  // namespace

UniqueFd lock_log_file(const std::string& path) {
  struct stat status {};
  // A FIFO must not be opened: that would make a reader of us.
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const Deadline deadline = Deadline::after(kPatience);
  while (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return {};
    if (deadline.expired())
      throw UsageError("--log-dir: the log file " + path + " is being written" + holder_of(status) +
                       ", by another job; give each job its own folder");
    std::this_thread::sleep_for(kLookAgain);
  }
  return fd;
}

bool is_continued(const UniqueFd& locked) {
  struct stat status {};
  return locked && ::fstat(locked.get(), &status) == 0 && status.st_size > 0;
}

std::string mark_of_job(const std::string& id, std::int64_t started_ns) {
  const std::time_t seconds = started_ns / 1'000'000'000;
  return fmt::format("\ndtrain-launch: job {}, started {:%Y-%m-%dT%H:%M:%SZ}\n", id, fmt::gmtime(seconds));
}

}  // namespace dtrain::launcher
