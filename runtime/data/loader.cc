// Threads take batch numbers in order, at most `prefetch` ahead of the user, and put each result into the
// slot of its number: the user waits for a number, so the threads' timing cannot show.
//
// Invariant: free pieces ≥ batches of the window that no thread has taken yet. The user's thread keeps it
// whenever it opens the window, so threads never wait for memory and never allocate.
#include "runtime/data/loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>

#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"
#include "runtime/base/start_thread.h"

namespace dtrain {
namespace {

LoaderOptions checked(const LoaderOptions& options, const std::shared_ptr<const Source>& source,
                      const std::shared_ptr<Device>& device) {
  if (source == nullptr || device == nullptr)
    throw UsageError("loader: expected a source and a device, got null");
  if (options.batch_size < 1)
    throw UsageError(fmt::format("loader: expected a batch size of at least 1, got {}", options.batch_size));
  if (options.threads < 0)
    throw UsageError(fmt::format("loader: expected 0 threads or more, got {}", options.threads));
  if (options.prefetch < 1)
    throw UsageError(fmt::format("loader: expected to prefetch at least 1 batch, got {}", options.prefetch));
  if (options.torch_workers.value_or(0) < 0) {
    throw UsageError(
        fmt::format("loader: expected 0 workers of PyTorch or more, got {}", *options.torch_workers));
  }
  return options;
}

}  // namespace

Loader::Loader(std::shared_ptr<const Source> source, std::shared_ptr<Device> device,
               const LoaderOptions& options)
    : source_(std::move(source)),
      options_(checked(options, source_, device)),
      layout_(*source_, options_.batch_size, options_.channels_last, options_.bytes, options_.pad_to_most),
      pool_(std::make_shared<BufferPool>(std::move(device), layout_.bytes())),
      window_(static_cast<std::size_t>(options.prefetch)) {
  start_threads();
}

Loader::~Loader() { shut_down(); }

void Loader::start_threads() {
  const AllSignalsBlocked for_the_threads;
  try {
    for (int i = 0; i < options_.threads; ++i)
      threads_.push_back(start_thread("dtrain-loader", [this] { work(); }));
  } catch (const SystemError&) {
    shut_down();
    throw;
  }
}

void Loader::shut_down() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    live_start_ = 0;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// ---- the user's side

void Loader::check_order(std::span<const std::int64_t> order, std::int64_t epoch) const {
  const std::int64_t size = source_->size();
  const auto bad =
      std::find_if(order.begin(), order.end(), [&](std::int64_t i) { return i < 0 || i >= size; });
  if (bad != order.end()) {
    throw UsageError(fmt::format("loader: expected indices from 0 to {}, got {} at place {}", size - 1, *bad,
                                 bad - order.begin()));
  }
  if (epoch < 0) throw UsageError(fmt::format("loader: expected an epoch of at least 0, got {}", epoch));
}

void Loader::start(std::vector<std::int64_t> order, std::int64_t epoch, std::int64_t first_batch) {
  check_order(order, epoch);
  const auto samples = static_cast<std::int64_t>(order.size());
  const std::int64_t full = samples / options_.batch_size;
  const std::int64_t batches = full + (samples % options_.batch_size != 0 && !options_.drop_last ? 1 : 0);
  if (first_batch < 0 || first_batch > batches) {
    throw UsageError(
        fmt::format("loader: expected a first batch from 0 to {}, got {}", batches, first_batch));
  }
  begin({std::move(order), {}}, batches, epoch, first_batch);
}

void Loader::start(std::vector<std::int64_t> order, std::vector<std::int64_t> ends, std::int64_t epoch) {
  check_order(order, epoch);
  std::int64_t before = 0;
  for (const std::int64_t end : ends) {
    if (end <= before || end - before > options_.batch_size) {
      throw UsageError(fmt::format("loader: expected batches of 1 to {} samples, got one from place {} to {}",
                                   options_.batch_size, before, end));
    }
    before = end;
  }
  if (before != static_cast<std::int64_t>(order.size())) {
    throw UsageError(
        fmt::format("loader: expected the last batch to end at place {}, got {}", order.size(), before));
  }
  const auto count = static_cast<std::int64_t>(ends.size());
  begin({std::move(order), std::move(ends)}, count, epoch, 0);
}

void Loader::begin(Batches batches, std::int64_t count, std::int64_t epoch, std::int64_t first_batch) {
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t opened =
        threads_.empty() ? 1 : std::min<std::int64_t>(count - first_batch, options_.prefetch);
    pool_->ensure_free(static_cast<std::size_t>(opened));
    live_start_ = ++start_;
    epoch_ = epoch;
    if (options_.torch_workers)
      batches.draws = std::make_shared<TorchDraws>(options_.seed, epoch, *options_.torch_workers);
    order_ = std::make_shared<const Batches>(std::move(batches));
    batches_ = order_->draws && first_batch > 0 ? 0 : count;  // threads wait for those before the first
    next_ = next_job_ = first_batch;
    failed_ = false;
    std::fill(window_.begin(), window_.end(), Staged{});
  }
  if (batches_ != count) {
    read_and_drop(first_batch);
    const std::lock_guard lock(mutex_);
    batches_ = count;
  }
  work_.notify_all();
}

// What they draw is what the draws of the others follow.
void Loader::read_and_drop(std::int64_t end) {
  pool_->ensure_free(1);
  for (std::int64_t number = 0; number < end; ++number)
    read({start_, epoch_, number, order_, pool_->take()}, false);
}

std::optional<Batch> Loader::next(const Deadline& deadline) {
  if (next_ >= batches_) return std::nullopt;
  const std::int64_t number = next_;
  return make_batch(number, threads_.empty() ? read_here() : wait_for_staged(deadline));
}

std::shared_ptr<std::byte> Loader::read_here() {
  pool_->ensure_free(1);
  const Job job{start_, epoch_, next_, order_, pool_->take()};
  read(job, false);
  ++next_;
  return job.memory;
}

std::shared_ptr<std::byte> Loader::wait_for_staged(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  Staged& slot = staged(next_);
  while (!slot.ready) {
    if (deadline.expired()) {
      throw Error(fmt::format("loader: batch {} of {} from {} was not read before the deadline", next_,
                              batches_, source_->name()));
    }
    if (deadline.is_never()) {
      ready_.wait(lock);
    } else {
      ready_.wait_for(lock, deadline.remaining());
    }
  }
  if (slot.failure) std::rethrow_exception(slot.failure);
  // One more batch will be open to the threads once this one is taken out.
  const std::int64_t opened = std::min(batches_, window_end() + 1) - next_job_;
  pool_->ensure_free(static_cast<std::size_t>(opened));
  auto memory = std::move(slot.memory);
  slot = Staged{};
  ++next_;
  lock.unlock();
  work_.notify_one();
  return memory;
}

Batch Loader::make_batch(std::int64_t number, std::shared_ptr<std::byte> memory) const {
  const auto count = static_cast<std::int64_t>(indices_of(*order_, number).size());
  Batch batch = layout_.batch(std::move(memory), count);
  batch.number = number;
  return batch;
}

// ---- the threads' side

std::int64_t Loader::window_end() const noexcept { return std::min(batches_, next_ + options_.prefetch); }

Loader::Staged& Loader::staged(std::int64_t number) noexcept {
  return window_[static_cast<std::size_t>(number % options_.prefetch)];
}

bool Loader::can_take() const noexcept {
  return !failed_ && next_job_ < window_end() && (!order_->draws || !order_->draws->in_use(next_job_));
}

void Loader::work() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || can_take(); });
    if (stopping_) return;
    Job job{start_, epoch_, next_job_++, order_, nullptr};
    if (order_->draws) order_->draws->set_in_use(job.number, true);
    std::exception_ptr failure;
    try {
      job.memory = pool_->take();  // while locked: the invariant counts what nobody has taken
      lock.unlock();
      read(job, true);
    } catch (...) {
      failure = std::current_exception();
    }
    if (!lock.owns_lock()) lock.lock();
    publish(job, std::move(failure));
  }
}

// Called with the lock held. A result of an order that is no longer in use is dropped.
void Loader::publish(Job& job, std::exception_ptr failure) noexcept {
  if (job.order->draws) {
    job.order->draws->set_in_use(job.number, false);
    work_.notify_all();
  }
  if (job.start == start_ && !stopping_) {
    failed_ = failed_ || failure != nullptr;
    staged(job.number) = Staged{true, std::move(job.memory), std::move(failure)};
    ready_.notify_one();
  }
  job.memory.reset();
}

std::span<const std::int64_t> Loader::indices_of(const Batches& batches, std::int64_t number) const noexcept {
  const auto at = static_cast<std::size_t>(number);
  const std::span order(batches.order);
  if (!batches.ends.empty()) {
    const auto first = static_cast<std::size_t>(at == 0 ? 0 : batches.ends[at - 1]);
    return order.subspan(first, static_cast<std::size_t>(batches.ends[at]) - first);
  }
  const auto size = static_cast<std::size_t>(options_.batch_size);
  return order.subspan(at * size, std::min(size, order.size() - at * size));
}

void Loader::read(const Job& job, bool interruptible) const {
  const SpanScope span(options_.spans, "decode batch", "data");
  const auto mine = indices_of(*job.order, job.number);
  layout_.check_unchanged(*source_, mine.front());
  std::vector<View> sample = layout_.first_sample(job.memory.get());
  for (const std::int64_t index : mine) {
    if (interruptible && live_start_.load(std::memory_order_relaxed) != job.start) return;
    KeyedGenerator generator = job.order->draws
                                   ? KeyedGenerator(job.order->draws->of(job.number))
                                   : KeyedGenerator(options_.seed, static_cast<std::uint64_t>(job.epoch),
                                                    static_cast<std::uint64_t>(index));
    read_sample(*source_, index, sample, generator);
    layout_.next(sample);
  }
  layout_.check_values(*source_, job.memory.get(), mine);
  layout_.cut_padding(job.memory.get(), static_cast<std::int64_t>(mine.size()));
  std::copy(mine.begin(), mine.end(), layout_.indices(job.memory.get()));
}

}  // namespace dtrain
