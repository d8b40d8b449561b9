// One thread a file: a file that hangs holds up no other. It shares the queue, so that it may outlive the
// object.
#include "launcher/output/log_file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "launcher/output/losses.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kHighWater = std::size_t{1} << 20;
constexpr std::size_t kMostWritten = std::size_t{256} << 10;

// Signals are the main thread's business.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

UniqueFd open_log_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw SystemError("make the folder of the log file " + path, error.value());
  constexpr int kFlags = O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  int fd = ::open(path.c_str(), O_WRONLY | kFlags, 0644);
  if (fd < 0 && errno == ENXIO) fd = ::open(path.c_str(), O_RDWR | kFlags, 0644);  // a FIFO without a reader
  return UniqueFd(static_cast<int>(check(Sys{fd}, "open log file " + path)));
}

struct LogFile::Queue {
  Queue(UniqueFd file, std::string name_, const Clock& clock_)
      : fd(std::move(file)), name(std::move(name_)), clock(&clock_), progress_at(clock_.now()) {}

  std::size_t left() const { return pending.size() + in_flight; }
  bool stalled() const { return left() > 0 && clock->now() - progress_at >= kStall; }
  void run();
  void write(std::string_view bytes, std::unique_lock<std::mutex>& lock);
  void drop_pending(int error);

  const UniqueFd fd;
  const std::string name;
  const Clock* clock;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::string pending;
  std::size_t in_flight = 0;  // with the thread
  TimePoint progress_at;
  Losses losses;
  bool started = false, closing = false, torn = false;
};

void LogFile::Queue::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return closing || !pending.empty(); });
    if (closing) return;
    const std::string chunk = pending.substr(0, kMostWritten);
    pending.erase(0, chunk.size());
    write(chunk, lock);
  }
}

void LogFile::Queue::write(std::string_view bytes, std::unique_lock<std::mutex>& lock) {
  in_flight = bytes.size();
  bool some = false;
  while (in_flight > 0 && !closing) {
    lock.unlock();
    ssize_t done = ::write(fd.get(), bytes.data(), bytes.size());
    const int error = done < 0 ? errno : 0;
    if (error == EAGAIN) {
      pollfd ready{fd.get(), POLLOUT, 0};
      ::poll(&ready, 1, 100);  // the reader of a FIFO is slow; look whether we are still wanted
    }
    lock.lock();
    if (error == EAGAIN || error == EINTR) continue;
    if (error != 0) {
      losses.failed(error, in_flight);
      torn = torn || some;
      in_flight = 0;
    } else {
      losses.worked();
      some = true;
      bytes.remove_prefix(static_cast<std::size_t>(done));
      in_flight = bytes.size();
      torn = torn && in_flight > 0;
      progress_at = clock->now();
    }
    changed.notify_all();
  }
}

void LogFile::Queue::drop_pending(int error) {
  if (!pending.empty()) losses.failed(error, pending.size());
  pending.clear();
}

LogFile::LogFile(UniqueFd fd, std::string name, const Clock& clock)
    : queue_(std::make_shared<Queue>(std::move(fd), std::move(name), clock)) {}

LogFile::~LogFile() {
  const std::lock_guard lock(queue_->mutex);
  queue_->closing = true;
  queue_->changed.notify_all();
}

void LogFile::append(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::lock_guard lock(queue_->mutex);
  Queue& queue = *queue_;
  if (queue.stalled()) {
    queue.drop_pending(ETIMEDOUT);
    queue.losses.failed(ETIMEDOUT, bytes.size());
    return;
  }
  if (queue.left() == 0) queue.progress_at = queue.clock->now();
  queue.pending.append(bytes);
  if (!queue.started && !start_writing()) {
    // Tried again with the next bytes.
    queue.drop_pending(EAGAIN);
    return;
  }
  queue.changed.notify_all();
}

// False where the machine or a limit (ulimit -u, pids.max) has no thread left.
bool LogFile::start_writing() {
  try {
    const BlockedSignals blocked;
    std::thread([shared = queue_] { shared->run(); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  queue_->started = true;
  return true;
}

bool LogFile::full() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->left() > kHighWater && !queue_->stalled();
}

bool LogFile::settle(const Deadline& deadline) const {
  std::unique_lock lock(queue_->mutex);
  Queue& queue = *queue_;
  const auto settled = [&queue] { return queue.left() == 0 || queue.stalled(); };
  while (!settled() && !deadline.expired())
    queue.changed.wait_for(lock, std::min<Duration>(deadline.remaining(), std::chrono::milliseconds(100)));
  return settled();
}

bool LogFile::torn() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->torn;
}

void LogFile::give_up() {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->in_flight > 0) queue_->losses.failed(ETIMEDOUT, queue_->in_flight);
  queue_->drop_pending(ETIMEDOUT);
  queue_->closing = true;
  queue_->losses.end();
}

std::optional<std::string> LogFile::take_news() {
  const std::lock_guard lock(queue_->mutex);
  return queue_->losses.take_news(queue_->name);
}

}  // namespace dtrain::launcher
