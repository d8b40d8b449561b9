#include "training/loop/checkpoint_saver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "parallel/share.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

// What a rank says of its part, the worst of which decides.
enum Word : int { kDone, kFailed, kWriting };

/// How long a disk that refuses is tried with one checkpoint, and after how long with another.
constexpr Duration kPatience = std::chrono::seconds(10), kPauseAfterFailure = std::chrono::seconds(10);
constexpr Duration kFirstLook = std::chrono::milliseconds(1), kLongestLook = std::chrono::milliseconds(100),
                   kSayAfter = std::chrono::seconds(5), kSlow = std::chrono::seconds(1);

AsyncWriterOptions writer_options(const SaverContext& context, const Shard& shard) {
  AsyncWriterOptions options{.spans = context.spans, .shard = shard, .patience = kPatience};
  options.begin_write = [mark = context.mark, before = context.before_write] {
    if (!mark.empty()) UniqueFd(::open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (before) before();
  };
  options.end_write = [mark = context.mark] {
    if (!mark.empty()) ::unlink(mark.c_str());
  };
  return options;
}

}  // namespace

CheckpointSaver::CheckpointSaver(std::unique_ptr<CheckpointStore> locked, const std::filesystem::path& folder,
                                 bool sharded, const SaverContext& context)
    : context_(context), sharded_(sharded && context.communicator.size() > 1), store_(std::move(locked)) {
  Shard shard;
  if (sharded_) {
    const int rank = context_.communicator.rank();
    const std::string id = broadcast_text(context_.communicator, store_ ? store_->writer_id() : "",
                                          Deadline::after(context_.start_patience));
    if (!store_) {
      store_ = std::make_unique<CheckpointStore>(folder, 0, context_.log);
      store_->write_for(id);
    }
    shard = {rank, context_.communicator.size()};
  }
  if (store_) store_->write_by(context_.permit);
  if (store_) writer_ = std::make_unique<AsyncCheckpointWriter>(*store_, writer_options(context_, shard));
}

CheckpointSaver::~CheckpointSaver() = default;

std::int64_t CheckpointSaver::begin(std::uint64_t bytes, std::int64_t step,
                                    std::span<const RefusedCheckpoint> refused) {
  auto all = static_cast<double>(bytes);
  if (sharded_) {
    context_.communicator
        .all_reduce({.data = &all, .count = 1, .dtype = DType::f64}, ReduceOp::sum, "checkpoint size")
        ->wait(Deadline::after(context_.start_patience));
  }
  if (context_.communicator.rank() != 0) return 0;
  store_->begin_writing(static_cast<std::uint64_t>(all));
  return store_->go_on_after(step, refused);
}

bool CheckpointSaver::writing() const { return writer_ && writer_->stage() == SaveStage::writing; }

bool CheckpointSaver::free() const { return sharded_ ? phase_ == Phase::none : !writing(); }

void CheckpointSaver::save(const Snapshot& snapshot) {
  if (!writer_) return;
  take_failure();
  failure_ = nullptr;
  owed_ = false;
  step_ = snapshot.state.step;
  begun_at_ = steady_clock().now();
  if (!sharded_) return writer_->save(snapshot, Deadline::never());
  writer_->prepare(snapshot, Deadline::never());
  phase_ = Phase::parts;
}

void CheckpointSaver::put_off(std::int64_t step) {
  if (!writer_ || owed_) return;
  owed_ = true;
  owed_from_ = steady_clock().now();
  // Steps that are faster than any disk are no news.
  if (context_.communicator.rank() != 0 || owed_from_ - begun_at_ < kSlow) return;
  context_.log.write(
      LogLevel::warning,
      fmt::format("checkpoint of step {}: that of step {} is still being written to {}; training goes "
                  "on, and the next one is taken when it is there",
                  step, step_, store_->directory().string()));
}

bool CheckpointSaver::wants_save() const {
  return context_.communicator.rank() == 0 && owed_ && free() && steady_clock().now() >= owed_from_;
}

int CheckpointSaver::word() const {
  if (!writer_) return kDone;
  const SaveStage stage = writer_->stage();
  return stage == SaveStage::writing ? kWriting : stage == SaveStage::failed ? kFailed : kDone;
}

void CheckpointSaver::poll() {
  if (sharded_ ? phase_ == Phase::none : word() != kFailed) return;
  sharded_ ? move_on(worst(word())) : take_failure();
  if (free()) tell_failure();
}

void CheckpointSaver::move_on(int verdict) {
  if (verdict == kWriting) return;
  const bool failed = verdict == kFailed;
  if (failed) {
    failing_ = true;
    take_failure();
  }
  if (phase_ == Phase::parts) {
    phase_ = Phase::ending;
    return failed ? writer_->abandon() : writer_->commit();
  }
  phase_ = Phase::none;
  if (!std::exchange(failing_, false) || failure_) return;
  fail(std::make_exception_ptr(Error(
      fmt::format("rank {}: the checkpoint of step {} was abandoned because another rank could not write "
                  "its part; the one before is intact, and the other rank's message says why",
                  context_.communicator.rank(), step_))));
}

void CheckpointSaver::drain(const std::function<bool()>& busy) {
  const Clock& clock = steady_clock();
  const TimePoint started = clock.now();
  bool said = false;
  for (Duration look = kFirstLook;; look = std::min(2 * look, kLongestLook)) {
    if (sharded_) poll();
    const bool here = (sharded_ ? phase_ != Phase::none : writing()) || (busy && busy());
    const int verdict = context_.in_step ? worst(here ? kWriting : kDone) : here ? kWriting : kDone;
    if (verdict == kDone) break;
    if (!said && clock.now() - started >= kSayAfter) {
      said = true;
      context_.log.write(LogLevel::info, here
                                             ? "still writing the last checkpoint and records"
                                             : "waiting for rank 0 to write the last checkpoint and records");
    }
    std::this_thread::sleep_for(look);
  }
  take_failure();
}

std::optional<std::int64_t> CheckpointSaver::refuse_from(std::int64_t step, const std::string& reason) {
  const auto newest = store_->refuse_from(step, reason);
  return newest ? std::optional(newest->step) : std::nullopt;
}

void CheckpointSaver::check() {
  if (failure_) std::rethrow_exception(failure_);
}

// Each rank answers whatever its disk does: one that does not is lost.
int CheckpointSaver::worst(int own) {
  auto value = static_cast<std::int64_t>(own);
  context_.communicator
      .all_reduce({.data = &value, .count = 1, .dtype = DType::i64}, ReduceOp::max, "checkpoint parts")
      ->wait(Deadline::after(context_.patience));
  return static_cast<int>(value);
}

void CheckpointSaver::take_failure() {
  if (!writer_ || writer_->stage() != SaveStage::failed) return;
  try {
    writer_->flush(Deadline::never());
  } catch (const Error&) {
    fail(std::current_exception());
  }
}

void CheckpointSaver::tell_failure() {
  try {
    check();
  } catch (const Error& error) {
    context_.log.write(LogLevel::warning,
                       fmt::format("{}; training goes on, and another is taken soon", error.what()));
  }
}

void CheckpointSaver::fail(const std::exception_ptr& error) {
  failure_ = error;
  owed_ = true;
  owed_from_ = steady_clock().now() + kPauseAfterFailure;
}

}  // namespace dtrain
