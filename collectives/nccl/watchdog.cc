#include "collectives/nccl/watchdog.h"

#include "runtime/base/blocked_signals.h"
#include "runtime/base/start_thread.h"

#include <fmt/format.h>

namespace dtrain::nccl {
namespace {

// After the reason has been published this process stays this long, so that waiting peers read it there
// before they see it (perhaps the host of the store) end.
constexpr std::chrono::milliseconds kLinger{300};
// How long the others' records may take when the library has failed here.
constexpr std::chrono::milliseconds kNotesCome{500};

}  // namespace

Watchdog::Watchdog(Parts parts, std::string name, Duration timeout, Log& log)
    : parts_(std::move(parts)),
      name_(std::move(name)),
      timeout_(timeout),
      log_(log),
      numbering_(name_, parts_.members.rank(), parts_.members.size()),
      // Both are asked by a watchdog that runs under our lock.
      sources_{parts_.members, parts_.oob, recorder_, [this] { return out_of_time_; },
               [this]() -> std::optional<std::string> {
                 if (!abort_reason_) return std::nullopt;
                 return fmt::format("by rank {}: {}", parts_.members.rank(), *abort_reason_);
               }} {
  const AllSignalsBlocked for_the_thread;
  thread_ = start_thread("dtrain-nccl", [this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::number(p2p::Call& call) {
  const std::lock_guard lock(mutex_);
  numbering_.number(call);
}

void Watchdog::watch(Pending pending) {
  {
    const std::lock_guard lock(mutex_);
    recorder_.record(pending.call);
    queue_.push_back(std::make_shared<Pending>(std::move(pending)));
  }
  wake_.notify_one();
}

void Watchdog::limit_calls(Duration timeout) noexcept {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

void Watchdog::abort(std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || abort_reason_) return;
    abort_reason_ = std::string(reason.empty() ? "no reason given" : reason);
  }
  wake_.notify_one();
}

void Watchdog::give_up(const p2p::Call& call) {
  std::unique_lock lock(mutex_);
  out_of_time_ = true;
  wake_.notify_one();
  // The call is in the queue or was the last of it: the thread ends the group at its next look.
  ended_.wait(lock, [&] { return failure_.has_value(); });
  lock.unlock();
  check(call);
}

std::optional<PeerFailure> Watchdog::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Watchdog::check(const p2p::Call& call) const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return;
  throw PeerError(fmt::format("{} on rank {} of {} (nccl): {}", call.text(), parts_.members.rank(),
                              parts_.members.size(), failure_->what),
                  *failure_);
}

bool Watchdog::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

void Watchdog::run() noexcept {
  if (parts_.begin) parts_.begin();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (queue_.empty() && !abort_reason_ && !out_of_time_) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, p2p::kTickEvery, [&] { return stopping_ || abort_reason_ || out_of_time_; });
    }
    if (stopping_) return;
    if (!failure_) look(lock);
    if (failure_) {
      queue_.clear();
      wake_.wait(lock, [&] { return stopping_; });
    }
  }
}

void Watchdog::look(std::unique_lock<std::mutex>& lock) {
  try {
    if (const auto failure = examine()) end(lock, *failure);
  } catch (const p2p::GroupEnds& ends) {
    end(lock, ends.failure);
  } catch (const p2p::LinkLost& lost) {
    end(lock, call_watchdog_->failure_of(lost));
  } catch (const std::exception& error) {
    const int rank = parts_.members.rank();
    PeerFailure failure;
    failure.rank = rank;
    failure.host = parts_.members.host_of(rank);
    failure.what = fmt::format("rank {} failed: {}", rank, error.what());
    end(lock, failure);
  }
}

// Throws what the watchdog throws.
std::optional<PeerFailure> Watchdog::examine() {
  while (!queue_.empty() && queue_.front()->done()) queue_.pop_front();
  if (queue_.empty()) {
    call_watchdog_.reset();
    watched_.reset();
    if (!abort_reason_ && !out_of_time_) return std::nullopt;
    PeerFailure failure;
    failure.rank = parts_.members.rank();
    failure.host = parts_.members.host_of(failure.rank);
    failure.operation = "abort";
    failure.what = abort_reason_ ? "aborted " + *sources_.aborted() : "a wait timed out";
    return failure;
  }
  if (watched_ != queue_.front()) {
    call_watchdog_.reset();  // it looks at the call
    watched_ = queue_.front();
    call_watchdog_.emplace(sources_, watched_->call, timeout_);
  }
  if (const auto text = parts_.library_failure()) {
    // NCCL does not say whose fault it was. The others see the failure too and leave their records meanwhile.
    parts_.oob.put_record(recorder_.dump(parts_.members.rank()));
    std::this_thread::sleep_for(kNotesCome);
    return call_watchdog_->accuse("NCCL failed: " + *text);
  }
  call_watchdog_->tick();
  return std::nullopt;
}

void Watchdog::end(std::unique_lock<std::mutex>& lock, const PeerFailure& failure) {
  lock.unlock();
  PeerFailure first = failure;
  if (auto winner = p2p::decode(parts_.oob.put_failure(p2p::encode(failure)))) first = std::move(*winner);
  std::this_thread::sleep_for(kLinger);
  lock.lock();
  // Before the kill: it makes the calls under way look finished, and nobody may take their memory for a
  // result.
  failure_ = std::move(first);
  const std::string what = failure_->what;
  ended_.notify_all();
  lock.unlock();
  parts_.kill();
  log_.write(LogLevel::debug, "group '" + name_ + "' ended: " + what);
  lock.lock();
}

}  // namespace dtrain::nccl
