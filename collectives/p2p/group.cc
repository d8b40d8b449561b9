#include "collectives/p2p/group.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>

#include "collectives/p2p/algorithms.h"
#include "runtime/base/blocked_signals.h"
#include "runtime/base/start_thread.h"

namespace dtrain::p2p {
namespace {

// After the reason has been published the links stay up this long, so that waiting peers read it there before
// they see the links break (or this process, perhaps the host of the store, end).
constexpr std::chrono::milliseconds kLinger{300};
// How long a group waits for the others when its communicator is destroyed.
constexpr std::chrono::seconds kLeaveWait{5};
constexpr std::chrono::seconds kTidyEvery{1};

// "all_reduce bucket 3"
std::string short_text(const Call& call) {
  return fmt::format("{}{}{}", name_of(call.operation), call.label.empty() ? "" : " ", call.label);
}

void run_exchange(Exchange& exchange, const QueuedCall& queued) {
  std::vector<Exchange::P2pOp> operations;
  for (std::size_t i = 0; i < queued.spans.size(); ++i) {
    const Call& message = queued.call.messages[i];
    operations.push_back({queued.spans[i].data, queued.spans[i].bytes(), message.root, message.fingerprint,
                          message.operation == Operation::send});
  }
  exchange.exchange(operations);
}

/// The calls that have something to do even where `count` is 0.
bool run_uncounted(Exchange& exchange, const QueuedCall& queued) {
  const Call& call = queued.call;
  switch (call.operation) {
    case Operation::barrier:
    case Operation::leave:
      return exchange.barrier(), true;
    case Operation::all_to_all:
      exchange.all_to_all(queued.input.data, call.sends, queued.output.data, call.receives,
                          size_of(call.dtype));
      return true;
    case Operation::exchange:
      return run_exchange(exchange, queued), true;
    case Operation::offer:
      return exchange.offer(queued.input.data, queued.input.bytes(), call.root), true;
    case Operation::receive_any:
      *queued.source = exchange.receive_any(queued.output.data, queued.output.bytes());
      return true;
    default:
      return false;
  }
}

void run_call(Exchange& exchange, const QueuedCall& queued) {
  const Call& call = queued.call;
  const std::size_t bytes = queued.output.bytes();
  if (run_uncounted(exchange, queued)) return;
  if (call.count == 0) {
    // Nothing to move, but ranks that do have something to move must still be told apart.
    if (!call.is_pairwise()) exchange.barrier();
    return;
  }
  switch (call.operation) {
    case Operation::all_reduce:
      return exchange.all_reduce(queued.output.data, call.count, call.dtype, call.reduce);
    case Operation::reduce_scatter:
      return exchange.reduce_scatter(queued.input.data, queued.output.data, call.count, call.dtype,
                                     call.reduce);
    case Operation::all_gather:
      return exchange.all_gather(queued.input.data, queued.output.data, queued.input.bytes());
    case Operation::broadcast:
      return exchange.broadcast(queued.output.data, bytes, call.root);
    case Operation::reduce:
      return exchange.reduce(queued.output.data, call.count, call.dtype, call.reduce, call.root);
    case Operation::gather:
      return exchange.gather(queued.input.data, queued.output.data, queued.input.bytes(), call.root);
    case Operation::scatter:
      return exchange.scatter(queued.input.data, queued.output.data, bytes, call.root);
    case Operation::send:
      return exchange.send(queued.input.data, queued.input.bytes(), call.root);
    case Operation::receive:
      return exchange.receive(queued.output.data, bytes, call.root);
    default:
      return;
  }
}

}  // namespace

Group::Group(Endpoints endpoints, std::string name, Duration timeout, Log& log, SpanRecorder* spans)
    : endpoints_(std::move(endpoints)),
      name_(std::move(name)),
      rank_(endpoints_.transport->rank()),
      size_(endpoints_.transport->size()),
      backend_(endpoints_.transport->name()),
      timeout_(timeout),
      log_(log),
      spans_(spans),
      segment_bytes_(endpoints_.plan ? endpoints_.plan->segment_bytes()
                                     : endpoints_.transport->segment_bytes()),
      numbering_(name_, rank_, size_),
      sources_{*endpoints_.transport, *endpoints_.oob, recorder_, [this] { return out_of_time(); },
               [this] { return aborted(); }} {
  log_.write(LogLevel::debug, fmt::format("group '{}': {} ranks, messages through {}; all_reduce {}", name_,
                                          size_, endpoints_.transport->medium(), all_reduce_text()));
  const AllSignalsBlocked for_the_thread;
  try {
    thread_ = start_thread("dtrain-comm", [this] { run(); });
  } catch (const SystemError& error) {
    abort(error.what());
    end_by_abort();  // the others are on their way to the first call
    throw;
  }
}

Group::~Group() { leave(); }

std::shared_ptr<QueuedCall> Group::submit(QueuedCall given) {
  numbering_.number(given.call);
  auto queued = std::make_shared<QueuedCall>(std::move(given));
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw_ended(queued->call);
    queue_.push_back(queued);
    const bool somebody_is_at_work = executing_ || queue_.size() > 1;
    if (somebody_is_at_work || call_start_ == CallStart::on_wait) return queued;
  }
  work_.notify_one();
  return queued;
}

void Group::wait(QueuedCall& queued, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  if (!queued.done) {
    const auto mine = waits_.insert(waits_.end(), deadline);
    while (!queued.done) {
      if (!executing_ && !queue_.empty()) {
        run_front(lock, true);
      } else {
        done_.wait(lock);  // ends: the executing thread is bound by our deadline too
      }
    }
    waits_.erase(mine);
  }
  if (!executing_ && (!queue_.empty() || abort_reason_)) work_.notify_one();
  if (queued.failed) throw_ended(queued.call);
}

bool Group::done(const QueuedCall& queued) noexcept {
  const std::lock_guard lock(mutex_);
  return queued.done;
}

void Group::run() noexcept {
  // Polling transports sleep for microseconds between looks; the default slack of 50 would be most of it.
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] {
      const bool has_call = call_start_ == CallStart::at_once && !queue_.empty(),
                 must_end = abort_reason_ && !failure_;
      return stopping_ || (!executing_ && (has_call || must_end));
    });
    if (!executing_ && abort_reason_ && !failure_) {
      executing_ = true;
      lock.unlock();
      end_by_abort();
      lock.lock();
      executing_ = false;
      done_.notify_all();
    } else if (!executing_ && !queue_.empty()) {
      run_front(lock, false);
    }
    if (stopping_ && queue_.empty() && !executing_) return;
    if (stopping_ && executing_) done_.wait(lock);
  }
}

// Runs the first queued call, the lock released meanwhile.
void Group::run_front(std::unique_lock<std::mutex>& lock, bool patient) noexcept {
  executing_ = true;
  const std::shared_ptr<QueuedCall> queued = queue_.front();
  queue_.pop_front();
  const bool dead = failure_.has_value(), aborted = abort_reason_.has_value();
  lock.unlock();
  if (aborted && !dead) end_by_abort();
  if (!aborted && !dead) execute(*queued, patient);
  lock.lock();
  executing_ = false;
  queued->done = true;
  queued->failed = failure_.has_value();
  if (failure_) {
    for (const auto& waiting : queue_) waiting->done = waiting->failed = true;
    queue_.clear();
  }
  done_.notify_all();
}

void Group::execute(QueuedCall& queued, bool patient) {
  Transport& transport = *endpoints_.transport;
  transport.set_patient(patient);
  recorder_.record(queued.call);
  CallWatchdog watchdog(sources_, queued.call,
                        queued.call.operation == Operation::leave ? Duration(kLeaveWait) : timeout_);
  try {
    const std::string name = spans_ != nullptr ? short_text(queued.call) : std::string();
    const SpanScope span(spans_, name, "collective");
    Exchange exchange({transport, scratch_, watchdog, queued.call.fingerprint, segment_bytes_},
                      endpoints_.plan.get());
    run_call(exchange, queued);
    if (const TimePoint now = steady_clock().now(); now - last_drain_ > kTidyEvery) {
      endpoints_.oob->drain();
      last_drain_ = now;
    }
  } catch (const GroupEnds& ends) {
    end(ends.failure);
  } catch (const LinkLost& lost) {
    // Others that have left already close their links: that is how a group ends in good order.
    if (queued.call.operation != Operation::leave) end(watchdog.failure_of(lost));
  } catch (const std::exception& error) {
    end(watchdog.blame(rank_, fmt::format("rank {} failed: {}", rank_, error.what())));
  }
}

// Tells the others, waits until they have had time to read it, and takes the links down.
void Group::end(const PeerFailure& failure) noexcept {
  PeerFailure first = failure;
  if (auto winner = decode(endpoints_.oob->put_failure(encode(failure)))) first = std::move(*winner);
  std::this_thread::sleep_for(kLinger);
  endpoints_.transport->close(true);
  log_.write(LogLevel::debug, "group '" + name_ + "' ended: " + first.what);
  const std::lock_guard lock(mutex_);
  failure_ = std::move(first);
}

std::string Group::all_reduce_text() const {
  return endpoints_.plan ? endpoints_.plan->text() : std::string(name_of(AllReduceAlgorithm::direct));
}

void Group::end_by_abort() noexcept {
  PeerFailure failure;
  failure.rank = rank_;
  failure.host = endpoints_.transport->host_of(rank_);
  failure.operation = "abort";
  failure.what = "aborted " + aborted().value_or("");
  end(failure);
}

void Group::set_call_start(CallStart start) noexcept {
  const std::lock_guard lock(mutex_);
  call_start_ = start;
}

void Group::abort(std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || abort_reason_) return;
    abort_reason_ = std::string(reason);
  }
  work_.notify_one();
}

std::optional<std::string> Group::aborted() {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_) return std::nullopt;
  return fmt::format("by rank {}: {}", rank_, *abort_reason_);
}

bool Group::out_of_time() {
  const std::lock_guard lock(mutex_);
  return std::any_of(waits_.begin(), waits_.end(),
                     [](const Deadline& deadline) { return deadline.expired(); });
}

void Group::throw_ended(const Call& call) const {
  throw PeerError(
      fmt::format("{} on rank {} of {} ({}): {}", call.text(), rank_, size_, backend_, failure_->what),
      *failure_);
}

void Group::leave() noexcept {
  if (!thread_.joinable()) return;
  try {
    QueuedCall leave;
    leave.call.operation = Operation::leave;
    submit(std::move(leave));
  } catch (const std::exception&) {
    // The group is dead already: there is nobody to take leave of.
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
  endpoints_.transport->close(false);
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_.emplace();
    failure_->operation = name_of(Operation::leave);
    failure_->what = "the communicator has been destroyed";
  }
}

Endpoints Group::split(const std::vector<int>& members, const std::string& name, const Deadline& deadline) {
  return endpoints_.transport->split(members, name, deadline);
}

}  // namespace dtrain::p2p
