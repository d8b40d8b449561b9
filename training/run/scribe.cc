#include "training/run/scribe.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Looked for, not woken for: a step then pays for a queue's end and not for a switch of threads.
constexpr auto kLookEvery = std::chrono::milliseconds(10);
constexpr Duration kFirstPause = std::chrono::milliseconds(50), kLongestPause = std::chrono::seconds(2);

}  // namespace

Scribe::Scribe(Log& log, const ScribeOptions& options) : log_(&log), options_(options) {
  const AllSignalsBlocked quiet;  // signals are for the training thread
  thread_ = std::thread([this] { work(); });
  ::pthread_setname_np(thread_.native_handle(), "dtrain-scribe");
}

Scribe::~Scribe() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (dropped_ > 0) {
    log_->write(LogLevel::warning,
                fmt::format("{} entries of the run's records could not be written", dropped_));
  }
}

void Scribe::post(Entry entry) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return entries_.size() < options_.most || stopping_; });
  entries_.push_back(std::move(entry));
}

bool Scribe::idle() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty();
}

bool Scribe::drain(const Deadline& deadline) {
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

void Scribe::check() {
  const std::lock_guard lock(mutex_);
  if (first_error_) std::rethrow_exception(std::exchange(first_error_, nullptr));
}

void Scribe::work() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    while (!entries_.empty()) {
      const Entry entry = entries_.front();
      lock.unlock();
      write(entry);
      lock.lock();
      entries_.pop_front();
    }
    hurried_ = false;
    changed_.notify_all();
    if (stopping_) return;
    changed_.wait_for(lock, kLookEvery, [this] { return stopping_ || hurried_; });
  }
}

void Scribe::write(const Entry& entry) {
  const Deadline deadline = Deadline::after(refusing_ ? Duration::zero() : options_.patience);
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    try {
      options_.permit.check("a record of the run");
      entry();
      refusing_ = false;
      return;
    } catch (const SystemError& error) {
      std::unique_lock lock(mutex_);
      if (pause == kFirstPause && dropped_ == 0)
        log_->write(LogLevel::warning, fmt::format("{}; trying again, training goes on", error.what()));
      const bool stops = changed_.wait_for(lock, pause, [this] { return stopping_; });
      if (stops || deadline.expired()) return drop(error);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      return drop(error);
    }
  }
}

void Scribe::drop(const std::exception& error) {
  refusing_ = true;
  if (dropped_++ > 0) return;
  first_error_ = std::current_exception();
  log_->write(LogLevel::warning, fmt::format("given up: {}", error.what()));
}

}  // namespace dtrain
