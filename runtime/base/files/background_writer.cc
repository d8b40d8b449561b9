#include "runtime/base/files/background_writer.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"
#include "runtime/base/start_thread.h"

namespace dtrain {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50), kLongestPause = std::chrono::seconds(2);

}  // namespace

BackgroundWriter::BackgroundWriter(Log& log, const BackgroundWriterOptions& options)
    : log_(&log), options_(options) {
  const AllSignalsBlocked quiet;  // signals are for the training thread
  thread_ = start_thread(options_.thread_name, [this] { work(); });
}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (dropped_ > 0 && options_.tells) {
    log_->write(LogLevel::warning,
                std::to_string(dropped_) + " entries of the run's records could not be written");
  }
}

void BackgroundWriter::post(Entry entry, Duration patience) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return entries_.size() < options_.most || stopping_; });
  entries_.push_back({std::move(entry), patience});
  if (options_.look_every == Duration::zero()) changed_.notify_all();
}

bool BackgroundWriter::idle() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty();
}

bool BackgroundWriter::drain(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return entries_.empty(); };
  hurried_ = true;
  changed_.notify_all();
  if (deadline.is_never()) {
    changed_.wait(lock, done);
    return true;
  }
  return changed_.wait_for(lock, std::max(deadline.remaining(), Duration::zero()), done);
}

bool BackgroundWriter::failed() const {
  const std::lock_guard lock(mutex_);
  return first_error_ != nullptr;
}

void BackgroundWriter::check() {
  const std::lock_guard lock(mutex_);
  if (!first_error_) return;
  refusing_ = false;
  std::rethrow_exception(std::exchange(first_error_, nullptr));
}

void BackgroundWriter::work() noexcept {
  std::unique_lock lock(mutex_);
  const auto wanted = [this] {
    return stopping_ || hurried_ || (options_.look_every == Duration::zero() && !entries_.empty());
  };
  while (true) {
    while (!entries_.empty()) {
      const Entry entry = entries_.front().entry;
      const Duration patience = refusing_ ? Duration::zero() : entries_.front().patience;
      lock.unlock();
      const bool written = write(entry, patience);
      lock.lock();
      refusing_ = !written;
      entries_.pop_front();
    }
    hurried_ = false;
    changed_.notify_all();
    if (stopping_) return;
    if (options_.look_every == Duration::zero()) {
      changed_.wait(lock, wanted);
    } else {
      changed_.wait_for(lock, options_.look_every, wanted);
    }
  }
}

bool BackgroundWriter::write(const Entry& entry, Duration patience) {
  const Deadline deadline = Deadline::after(patience);
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    try {
      entry();
      return true;
    } catch (const SystemError& error) {
      std::unique_lock lock(mutex_);
      if (deadline.expired()) return drop(error);
      if (pause == kFirstPause && (dropped_ == 0 || !options_.tells))
        log_->write(LogLevel::warning, std::string(error.what()) + "; trying again");
      if (changed_.wait_for(lock, std::min(pause, deadline.remaining()), [this] { return stopping_; }))
        return drop(error);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      return drop(error);
    }
  }
}

bool BackgroundWriter::drop(const std::exception& error) {
  ++dropped_;
  if (first_error_ == nullptr && (dropped_ == 1 || !options_.tells)) first_error_ = std::current_exception();
  if (dropped_ == 1 && options_.tells)
    log_->write(LogLevel::warning, std::string("given up: ") + error.what());
  return false;
}

}  // namespace dtrain
