// One slot: the caller copies into it and hands it over, the writer's thread writes it and hands it back.
#include "runtime/checkpoint/async_writer.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/base/files/background_writer.h"

namespace dtrain {
namespace {

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
  Impl(CheckpointStore& checkpoint_store, AsyncWriterOptions given)
      : store(&checkpoint_store),
        options(std::move(given)),
        writer(store->log(), {.thread_name = "dtrain-save",
                              .patience = options.patience,
                              .look_every = Duration::zero(),
                              .tells = false}) {}

  // `write`, with what is to be done around it whether or not it succeeds.
  void post(const char* span, const BackgroundWriter::Entry& write, Duration patience) {
    writer.post([this] { begin_write(); });
    writer.post(
        [this, span, write] {
          const SpanScope scope(options.spans, span, "checkpoint");
          write();
        },
        patience);
    if (options.end_write) writer.post(options.end_write);
  }

  void begin_write() {
    try {
      if (options.begin_write) options.begin_write();
    } catch (const std::exception& failure) {
      store->log().write(LogLevel::warning, failure.what());
    }
  }

  std::int64_t step() const { return copy.snapshot().state.step; }

  // Waits until the thread has nothing to do and throws what it failed with.
  void settle(const Deadline& deadline) {
    if (!writer.drain(deadline)) {
      throw SystemError(
          fmt::format("checkpoint of step {}: expected it to be on disk by now, it is still being "
                      "written to {}; is the disk slow or its network down?",
                      step(), store->directory().string()),
          ETIMEDOUT);
    }
    writer.check();
  }

  void take(const Snapshot& snapshot, const Deadline& deadline) {
    checkpoint_bytes(snapshot);  // refuses here, in the caller's thread, what cannot be written
    settle(deadline);
    if (prepared) {
      throw UsageError(
          fmt::format("checkpoint of step {}: expected the one of step {} to be committed or abandoned "
                      "before",
                      snapshot.state.step, step()));
    }
    copy.take(snapshot);
  }

  CheckpointStore* store;
  AsyncWriterOptions options;
  SnapshotCopy copy;  // the caller's while the thread is idle, the thread's while it is not
  std::atomic<bool> prepared = false;
  std::atomic<std::int64_t> durable = -1;
  BackgroundWriter writer;  // last: its thread uses all of the above
};

AsyncCheckpointWriter::AsyncCheckpointWriter(CheckpointStore& store, AsyncWriterOptions options)
    : impl_(std::make_unique<Impl>(store, std::move(options))) {}

AsyncCheckpointWriter::~AsyncCheckpointWriter() {
  try {
    impl_->settle(Deadline::never());
  } catch (const std::exception& error) {
    impl_->store->log().write(LogLevel::error, error.what());
  }
  if (impl_->prepared && impl_->options.shard.index == 0) impl_->store->abandon();
}

void AsyncCheckpointWriter::save(const Snapshot& snapshot, const Deadline& deadline) {
  if (impl_->options.shard.count != 1)
    throw UsageError("saving one of several shards: expected prepare and commit, got save");
  impl_->take(snapshot, deadline);
  const auto write = [impl = impl_.get()] {
    impl->store->save(impl->copy.snapshot());
    impl->durable = impl->step();
  };
  impl_->post("write checkpoint", write, impl_->options.patience);
}

void AsyncCheckpointWriter::prepare(const Snapshot& snapshot, const Deadline& deadline) {
  impl_->take(snapshot, deadline);
  const auto write = [impl = impl_.get()] {
    impl->store->prepare(impl->copy.snapshot(), impl->options.shard);
    impl->prepared = true;
  };
  impl_->post("write checkpoint", write, impl_->options.patience);
}

SaveStage AsyncCheckpointWriter::stage() const noexcept {
  if (!impl_->writer.idle()) return SaveStage::writing;
  if (impl_->writer.failed()) return SaveStage::failed;
  return impl_->prepared ? SaveStage::prepared : SaveStage::idle;
}

void AsyncCheckpointWriter::wait_prepared(const Deadline& deadline) {
  impl_->settle(deadline);
  if (!impl_->prepared) throw UsageError("checkpoint: expected prepare before wait_prepared");
}

void AsyncCheckpointWriter::commit() {
  if (!impl_->writer.idle() || !impl_->prepared.exchange(false))
    throw UsageError("checkpoint: expected a commit of what is prepared; ask stage() first");
  if (impl_->options.shard.index != 0) return;
  const auto write = [impl = impl_.get()] {
    impl->store->commit(impl->copy.snapshot().state, impl->options.shard.count);
    impl->durable = impl->step();
  };
  impl_->post("commit checkpoint", write,
              Duration::zero());  // one that failed has dropped what it would commit
}

void AsyncCheckpointWriter::abandon() {
  if (!impl_->writer.idle())
    throw UsageError("checkpoint: expected to abandon what has been written, it is still being written");
  impl_->prepared = false;
  if (impl_->options.shard.index != 0) return;
  impl_->writer.post([store = impl_->store] { store->abandon(); }, Duration::zero());
}

void AsyncCheckpointWriter::flush(const Deadline& deadline) { impl_->settle(deadline); }

std::optional<std::int64_t> AsyncCheckpointWriter::durable_step() const {
  const std::int64_t step = impl_->durable;
  return step < 0 ? std::nullopt : std::optional(step);
}

}  // namespace dtrain
