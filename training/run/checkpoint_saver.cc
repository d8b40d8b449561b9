#include "training/run/checkpoint_saver.h"

#include <fmt/format.h>

#include "parallel/share.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// What a rank says of its part, the worst of which decides.
enum Word : int { kWritten, kFailed, kWriting };

}  // namespace

CheckpointSaver::CheckpointSaver(std::unique_ptr<CheckpointStore> locked, const std::filesystem::path& folder,
                                 bool sharded, const SaverContext& context)
    : context_(context), sharded_(sharded && context.communicator.size() > 1), store_(std::move(locked)) {
  Shard shard;
  if (sharded_) {
    const int rank = context_.communicator.rank();
    const std::string id = broadcast_text(context_.communicator, store_ ? store_->writer_id() : "",
                                          Deadline::after(context_.patience));
    if (!store_) {
      store_ = std::make_unique<CheckpointStore>(folder, 0, context_.log);
      store_->write_for(id);
    }
    shard = {rank, context_.communicator.size()};
  }
  if (store_) writer_ = std::make_unique<AsyncCheckpointWriter>(*store_, context_.spans, shard);
}

void CheckpointSaver::begin(std::uint64_t bytes, std::int64_t step,
                            std::span<const RefusedCheckpoint> refused) {
  auto all = static_cast<double>(bytes);
  if (sharded_) {
    context_.communicator
        .all_reduce({.data = &all, .count = 1, .dtype = DType::f64}, ReduceOp::sum, "checkpoint size")
        ->wait(Deadline::after(context_.patience));
  }
  if (context_.communicator.rank() != 0) return;
  store_->begin_writing(static_cast<std::uint64_t>(all));
  store_->set_aside_after(step, refused);
}

void CheckpointSaver::save(const Snapshot& snapshot) {
  if (!writes()) return;
  if (!sharded_) return writer_->save(snapshot, Deadline::never());
  settle(/*wait=*/true);
  writer_->prepare(snapshot, Deadline::never());
  in_flight_ = true;
}

void CheckpointSaver::poll() {
  if (sharded_ && in_flight_) settle(/*wait=*/false);
}

void CheckpointSaver::finish() {
  if (!writes()) return;
  if (sharded_) settle(/*wait=*/true);
  writer_->flush(Deadline::never());
}

void CheckpointSaver::settle(bool wait) {
  if (!in_flight_) return;
  std::exception_ptr failure;
  Word own = kWriting;
  if (wait) {
    try {
      writer_->wait_prepared(Deadline::never());
    } catch (const Error&) {
      failure = std::current_exception();
    }
    own = failure ? kFailed : kWritten;
  } else {
    const SaveStage stage = writer_->stage();
    own = stage == SaveStage::writing ? kWriting : stage == SaveStage::failed ? kFailed : kWritten;
  }
  const int verdict = worst(own);
  if (verdict == kWriting) return;
  in_flight_ = false;
  if (verdict == kWritten) return writer_->commit();
  writer_->abandon();
  give_up(failure);
}

// A rank waits for the slowest disk among them: that is no sign of a lost peer, which its connection is.
int CheckpointSaver::worst(int own) {
  auto value = static_cast<std::int64_t>(own);
  context_.communicator
      .all_reduce({.data = &value, .count = 1, .dtype = DType::i64}, ReduceOp::max, "checkpoint parts")
      ->wait(Deadline::never());
  return static_cast<int>(value);
}

void CheckpointSaver::give_up(std::exception_ptr own) {
  if (own) std::rethrow_exception(own);
  writer_->flush(Deadline::never());  // throws this rank's error, if it is the one
  throw Error(fmt::format(
      "rank {}: a checkpoint was abandoned because another rank could not write its part; the one "
      "before is intact, and the other rank's message says why",
      context_.communicator.rank()));
}

}  // namespace dtrain
