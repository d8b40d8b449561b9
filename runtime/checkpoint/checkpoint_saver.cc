#include "runtime/checkpoint/checkpoint_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/checkpoint/taken_snapshot.h"

namespace dtrain {
namespace {

// What a process says of its shard, the worst of which decides.
enum State : std::int64_t { kDone, kFailed, kWriting };

/// After how long another checkpoint is tried where one failed.
constexpr Duration kPauseAfterFailure = std::chrono::seconds(10);
constexpr Duration kFirstLook = std::chrono::milliseconds(1), kLongestLook = std::chrono::milliseconds(100),
                   kSayAfter = std::chrono::seconds(5), kSlow = std::chrono::seconds(1);

}  // namespace

CheckpointSaver::CheckpointSaver(CheckpointStore* store, Log& log, CheckpointSaverOptions options)
    : store_(store), log_(log), options_(std::move(options)) {
  if (sharded() && !options_.max_over_ranks)
    throw UsageError(
        fmt::format("saving {} shards: expected a way to agree with the other processes "
                    "(max_over_ranks), got none",
                    options_.shard.count));
  if (store_ == nullptr) return;
  taken_ = std::make_unique<TakenSnapshot>();
  writer_ = std::make_unique<BackgroundWriter>(log, BackgroundWriterOptions{.thread_name = "dtrain-save",
                                                                            .patience = options_.patience,
                                                                            .look_every = Duration::zero(),
                                                                            .tells = false});
}

CheckpointSaver::~CheckpointSaver() {
  if (!writer_) return;
  writer_->drain(Deadline::never());
  try {
    take_failure();
    if (!reported_) check();
  } catch (const std::exception& error) {
    log_.write(LogLevel::error, error.what());
  }
  if (phase_ == Phase::shards && leads()) store_->abandon();
}

bool CheckpointSaver::free() const { return sharded() ? phase_ == Phase::none : !writing(); }

void CheckpointSaver::save(const Snapshot& snapshot, const Deadline& deadline) {
  if (!begin_save(snapshot, deadline)) return;
  taken_->copy(snapshot);
  write_taken();
}

void CheckpointSaver::save_in_place(const Snapshot& snapshot, std::shared_ptr<const void> owner,
                                    const Deadline& deadline) {
  if (!begin_save(snapshot, deadline)) return;
  taken_->keep(snapshot, std::move(owner));
  write_taken();
}

// False where there is nothing to save here.
bool CheckpointSaver::begin_save(const Snapshot& snapshot, const Deadline& deadline) {
  if (!writer_) return false;
  checkpoint_bytes(snapshot);  // refuses here, in the caller's thread, what cannot be written
  if (sharded() && !free()) {
    throw UsageError(
        fmt::format("checkpoint of step {}: expected the one of step {} to have ended before; "
                    "ask free(), or drain() first",
                    snapshot.state.step, step_));
  }
  wait(deadline);
  take_failure();
  report_failure();
  failure_ = nullptr;
  owed_ = false;
  step_ = snapshot.state.step;
  begun_at_ = steady_clock().now();
  return true;
}

void CheckpointSaver::write_taken() {
  if (sharded()) {
    phase_ = Phase::shards;
    return post(
        "write checkpoint", [this] { store_->prepare(taken_->snapshot(), options_.shard); },
        options_.patience);
  }
  const auto write = [this] {
    store_->save(taken_->snapshot());
    durable_ = step_;
  };
  post("write checkpoint", write, options_.patience);
}

// `write`, with what is to be done around it whether or not it succeeds.
void CheckpointSaver::post(const char* span, const BackgroundWriter::Entry& write, Duration patience) {
  writer_->post([this] {
    try {
      if (options_.begin_write) options_.begin_write();
    } catch (const std::exception& failure) {
      log_.write(LogLevel::warning, failure.what());
    }
  });
  writer_->post(
      [this, span, write] {
        const SpanScope scope(options_.spans, span, "checkpoint");
        write();
      },
      patience);
  if (options_.end_write) writer_->post(options_.end_write);
}

void CheckpointSaver::postpone(std::int64_t step) {
  if (!writer_ || owed_) return;
  owed_ = true;
  owed_from_ = steady_clock().now();
  // Steps that are faster than any disk are no news.
  if (!leads() || owed_from_ - begun_at_ < kSlow) return;
  log_.write(LogLevel::warning,
             fmt::format("checkpoint of step {}: that of step {} is still being written to {}; training "
                         "continues, and the next one is taken as soon as that is done",
                         step, step_, store_->directory().string()));
}

bool CheckpointSaver::wants_save() const {
  return leads() && owed_ && free() && steady_clock().now() >= owed_from_;
}

std::int64_t CheckpointSaver::own_state() const {
  if (!writer_) return kDone;
  return writing() ? kWriting : writer_->failed() ? kFailed : kDone;
}

void CheckpointSaver::poll() {
  if (sharded() ? phase_ == Phase::none : own_state() != kFailed) return;
  sharded() ? advance(options_.max_over_ranks(own_state())) : take_failure();
  if (free()) report_failure();
}

void CheckpointSaver::advance(std::int64_t worst) {
  if (worst == kWriting) return;
  const bool failed = worst == kFailed;
  if (failed) {
    failing_ = true;
    take_failure();
  }
  if (phase_ == Phase::shards) {
    phase_ = Phase::ending;
    return end_shards(failed);
  }
  phase_ = Phase::none;
  if (!std::exchange(failing_, false) || failure_) return;
  fail(std::make_exception_ptr(Error(
      fmt::format("rank {}: the checkpoint of step {} was abandoned because another rank could not write "
                  "its part; the one before is intact, and the other rank's message says why",
                  options_.shard.index, step_))));
}

// All shards are written, or one failed and none is being written.
void CheckpointSaver::end_shards(bool failed) {
  if (!leads()) return;
  if (failed) return writer_->post([store = store_] { store->abandon(); }, Duration::zero());
  const auto write = [this] {
    store_->commit(taken_->snapshot().state, options_.shard.count);
    durable_ = step_;
  };
  post("commit checkpoint", write, Duration::zero());  // one that failed has dropped what it would commit
}

void CheckpointSaver::wait(const Deadline& deadline) {
  if (!writer_ || writer_->drain(deadline)) return;
  throw SystemError(fmt::format("checkpoint of step {}: expected it to be on disk by now, it is still being "
                                "written to {}; is the disk slow or its network down?",
                                step_, store_->directory().string()),
                    ETIMEDOUT);
}

void CheckpointSaver::drain(const std::function<bool()>& busy) {
  const Clock& clock = steady_clock();
  const TimePoint started = clock.now();
  bool said = false;
  for (Duration look = kFirstLook;; look = std::min(2 * look, kLongestLook)) {
    if (sharded()) poll();
    const bool here = !free() || (busy && busy());
    const std::int64_t own = here ? kWriting : kDone;
    if ((options_.max_over_ranks ? options_.max_over_ranks(own) : own) == kDone) break;
    if (!said && clock.now() - started >= kSayAfter) {
      said = true;
      log_.write(LogLevel::info, here ? "still writing the last checkpoint and records"
                                      : "waiting for rank 0 to write the last checkpoint and records");
    }
    std::this_thread::sleep_for(look);
  }
  take_failure();
}

void CheckpointSaver::check() {
  take_failure();
  if (!failure_) return;
  reported_ = true;
  std::rethrow_exception(failure_);
}

std::optional<std::int64_t> CheckpointSaver::durable_step() const {
  const std::int64_t step = durable_;
  return step < 0 ? std::nullopt : std::optional(step);
}

void CheckpointSaver::take_failure() {
  if (own_state() != kFailed) return;
  try {
    writer_->check();
  } catch (const Error&) {
    fail(std::current_exception());
  }
}

void CheckpointSaver::report_failure() {
  if (std::exchange(reported_, true)) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    if (options_.on_failure) return options_.on_failure(error);
    log_.write(LogLevel::warning,
               fmt::format("{}; training continues, and another one is taken soon", error.what()));
  }
}

void CheckpointSaver::fail(const std::exception_ptr& error) {
  failure_ = error;
  reported_ = false;
  owed_ = true;
  owed_from_ = steady_clock().now() + kPauseAfterFailure;
}

}  // namespace dtrain
