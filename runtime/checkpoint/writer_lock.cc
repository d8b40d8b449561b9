#include "runtime/checkpoint/writer_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/input_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPause = std::chrono::milliseconds(10);

bool try_lock(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  throw SystemError("flock", errno);
}

bool cannot_lock(int error_number) {
  return error_number == ENOSYS || error_number == EOPNOTSUPP || error_number == ENOLCK;
}

std::string holder_of(int fd) {
  char text[128] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : "an unknown process";
}

void sign(int fd, const fs::path& path) {
  char host[65] = {};
  ::gethostname(host, sizeof host - 1);
  check(Sys{::ftruncate(fd, 0)}, "ftruncate " + path.string());
  write_all(fd, fmt::format("process {} on {}", ::getpid(), host), path);
}

// flock(2) cannot wait until a moment.
void wait_for_lock(int fd, const fs::path& path, const Deadline& deadline, Duration say_after, Log& log) {
  const Deadline silent = Deadline::after(say_after);
  bool said = false;
  while (!try_lock(fd)) {
    if (deadline.expired()) {
      throw SystemError(fmt::format("{}: expected no other writer, found {}; wait for it, end it, or choose "
                                    "another folder",
                                    path.parent_path().string(), holder_of(fd)),
                        EBUSY);
    }
    if (!said && silent.expired()) {
      said = true;
      const std::string rest =
          deadline.is_never()
              ? ""
              : fmt::format(" for another {} s",
                            std::chrono::ceil<std::chrono::seconds>(deadline.remaining()).count());
      log.write(LogLevel::warning, fmt::format("{}: held by {}; if that process is dead, the file server "
                                               "releases the lock by itself; waiting{}",
                                               path.parent_path().string(), holder_of(fd), rest));
    }
    std::this_thread::sleep_for(std::min<Duration>(deadline.remaining(), kPause));
  }
}

}  // namespace

UniqueFd take_writer_lock(const fs::path& path, const Deadline& deadline, Duration say_after, Log& log) {
  UniqueFd fd;
  with_patience([&] {
    fd.reset(static_cast<int>(
        check(Sys{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)}, "open " + path.string())));
  });
  try {
    wait_for_lock(fd.get(), path, deadline, say_after, log);
    sign(fd.get(), path);
  } catch (const SystemError& error) {
    if (!cannot_lock(error.error_number())) throw;
    log.write(LogLevel::warning, fmt::format("{}: this file system has no locks; make sure that only one run "
                                             "writes checkpoints there",
                                             path.parent_path().string()));
  }
  return fd;
}

}  // namespace dtrain
