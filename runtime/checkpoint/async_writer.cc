// One thread, one slot: the caller copies into the slot and hands it over, the thread writes it and hands it
// back.
#include "runtime/checkpoint/async_writer.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50), kLongestPause = std::chrono::seconds(2);

// A snapshot with its own memory, which only ever grows: the next save finds pages that are already there.
class SnapshotCopy {
 public:
  void take(const Snapshot& source) {
    reserve(bytes_of(source.model) + bytes_of(source.optimizer));
    copy_.state = source.state;
    std::size_t at = 0;
    copy(source.model, copy_.model, at);
    copy(source.optimizer, copy_.optimizer, at);
  }
  const Snapshot& snapshot() const noexcept { return copy_; }

 private:
  static constexpr std::size_t kAlignment = 16;  // what operator new[] gives, and more than any dtype needs

  static std::size_t bytes_of(const View& view) {
    const std::size_t bytes = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  static std::size_t bytes_of(const std::vector<NamedView>& tensors) {
    std::size_t bytes = 0;
    for (const auto& tensor : tensors) bytes += bytes_of(tensor.view);
    return bytes;
  }
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    capacity_ = bytes;
  }
  void copy(const std::vector<NamedView>& source, std::vector<NamedView>& target, std::size_t& at) {
    target = source;
    for (auto& tensor : target) {
      View& view = tensor.view;
      const std::size_t bytes = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
      if (bytes != 0) std::memcpy(memory_.get() + at, view.data, bytes);
      view.data = memory_.get() + at;
      at += bytes_of(view);
    }
  }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  Snapshot copy_;
};

}  // namespace

struct AsyncCheckpointWriter::Impl {
  /// What the thread is to do.
  enum class Task { none, prepare, prepare_and_commit, commit, abandon, stop };

  Impl(CheckpointStore& checkpoint_store, AsyncWriterOptions given)
      : store(&checkpoint_store), options(std::move(given)), thread(start()) {}

  std::thread start() {
    const AllSignalsBlocked quiet;  // signals are for the training thread
    std::thread started([this] { work(); });
    ::pthread_setname_np(started.native_handle(), "dtrain-save");
    return started;
  }

  void work() noexcept {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return task != Task::none; });
      if (task == Task::stop) return;
      lock.unlock();
      std::exception_ptr failed;
      try {
        perform();
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      if (failed) error = failed;
      prepared = !failed && task == Task::prepare;
      if (!failed && (task == Task::commit || task == Task::prepare_and_commit)) durable = step();
      task = Task::none;
      changed.notify_all();
    }
  }

  // In the thread. The task does not change while it is done.
  void perform() {
    if (task == Task::abandon) return store->abandon();
    const SpanScope span(options.spans, task == Task::commit ? "commit checkpoint" : "write checkpoint",
                         "checkpoint");
    begin_write();
    try {
      try_for_a_while();
    } catch (...) {
      if (options.end_write) options.end_write();
      throw;
    }
    if (options.end_write) options.end_write();
  }

  void begin_write() {
    try {
      if (options.begin_write) options.begin_write();
    } catch (const std::exception& failure) {
      store->log().write(LogLevel::warning, failure.what());
    }
  }

  // A commit that has failed has dropped what it would commit.
  void try_for_a_while() {
    const Deadline deadline = Deadline::after(task == Task::commit ? Duration::zero() : options.patience);
    for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      try {
        return write();
      } catch (const SystemError& failure) {
        if (deadline.expired()) throw;
        if (pause == kFirstPause)
          store->log().write(LogLevel::warning, fmt::format("{}; trying again", failure.what()));
        std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
      }
    }
  }

  void write() {
    if (task == Task::prepare_and_commit) {
      store->save(copy.snapshot());
    } else if (task == Task::prepare) {
      store->prepare(copy.snapshot(), options.shard);
    } else {
      store->commit(copy.snapshot().state, options.shard.count);
    }
  }

  std::int64_t step() const { return copy.snapshot().state.step; }

  void begin(Task next) {
    prepared = false;
    task = next;
    changed.notify_all();
  }

  // Waits until the thread has nothing to do and throws what it failed with.
  void settle(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
    const auto done = [this] { return task == Task::none; };
    while (!done()) {
      if (deadline.is_never()) {
        changed.wait(lock, done);
      } else if (deadline.expired()) {
        throw SystemError(
            fmt::format("checkpoint of step {}: expected it to be on disk by now, it is still being "
                        "written to {}; is the disk slow or its network down?",
                        step(), store->directory().string()),
            ETIMEDOUT);
      } else {
        changed.wait_for(lock, deadline.remaining(), done);
      }
    }
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  void take(const Snapshot& snapshot, Task next, const Deadline& deadline) {
    checkpoint_bytes(snapshot);  // refuses here, in the caller's thread, what cannot be written
    std::unique_lock lock(mutex);
    settle(lock, deadline);
    if (prepared) {
      throw UsageError(
          fmt::format("checkpoint of step {}: expected the one of step {} to be committed or abandoned "
                      "before",
                      snapshot.state.step, step()));
    }
    copy.take(snapshot);
    begin(next);
  }

  CheckpointStore* store;
  AsyncWriterOptions options;
  SnapshotCopy copy;  // the caller's while there is no task, the thread's while there is one
  mutable std::mutex mutex;
  std::condition_variable changed;
  Task task = Task::none;
  bool prepared = false;
  std::exception_ptr error;
  std::optional<std::int64_t> durable;
  std::thread thread;  // last: it uses all of the above
};

AsyncCheckpointWriter::AsyncCheckpointWriter(CheckpointStore& store, AsyncWriterOptions options)
    : impl_(std::make_unique<Impl>(store, std::move(options))) {}

AsyncCheckpointWriter::~AsyncCheckpointWriter() {
  try {
    std::unique_lock lock(impl_->mutex);
    impl_->settle(lock, Deadline::never());
  } catch (const std::exception& error) {
    impl_->store->log().write(LogLevel::error, error.what());
  }
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->prepared && impl_->options.shard.index == 0) impl_->store->abandon();
    impl_->task = Impl::Task::stop;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

void AsyncCheckpointWriter::save(const Snapshot& snapshot, const Deadline& deadline) {
  if (impl_->options.shard.count != 1)
    throw UsageError("saving one of several shards: expected prepare and commit, got save");
  impl_->take(snapshot, Impl::Task::prepare_and_commit, deadline);
}

void AsyncCheckpointWriter::prepare(const Snapshot& snapshot, const Deadline& deadline) {
  impl_->take(snapshot, Impl::Task::prepare, deadline);
}

SaveStage AsyncCheckpointWriter::stage() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->task != Impl::Task::none) return SaveStage::writing;
  if (impl_->error) return SaveStage::failed;
  return impl_->prepared ? SaveStage::prepared : SaveStage::idle;
}

void AsyncCheckpointWriter::wait_prepared(const Deadline& deadline) {
  std::unique_lock lock(impl_->mutex);
  impl_->settle(lock, deadline);
  if (!impl_->prepared) throw UsageError("checkpoint: expected prepare before wait_prepared");
}

void AsyncCheckpointWriter::commit() {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->prepared || impl_->task != Impl::Task::none) {
    throw UsageError("checkpoint: expected a commit of what is prepared; ask stage() first");
  }
  if (impl_->options.shard.index == 0) return impl_->begin(Impl::Task::commit);
  impl_->prepared = false;
}

void AsyncCheckpointWriter::abandon() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->task != Impl::Task::none) {
    throw UsageError("checkpoint: expected to abandon what has been written, it is still being written");
  }
  if (impl_->options.shard.index == 0) return impl_->begin(Impl::Task::abandon);
  impl_->prepared = false;
}

void AsyncCheckpointWriter::flush(const Deadline& deadline) {
  std::unique_lock lock(impl_->mutex);
  impl_->settle(lock, deadline);
}

std::optional<std::int64_t> AsyncCheckpointWriter::durable_step() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->durable;
}

}  // namespace dtrain
