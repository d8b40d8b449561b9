// Writes checkpoints beside training: save() copies the tensors and returns, a thread writes the copy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/spans.h"
#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {

/// At most one checkpoint is in flight. All calls from one thread. Memory: one copy of what is saved, kept
/// for the next save.
class AsyncCheckpointWriter {
 public:
  /// `store` is borrowed and must not be used for writing by anyone else while the writer lives; so is
  /// `spans`, where each write leaves a span; null: nowhere.
  explicit AsyncCheckpointWriter(CheckpointStore& store, SpanRecorder* spans = nullptr);
  /// Waits for the save in flight, however long the disk takes; an error nobody fetched goes to the store's
  /// log.
  ~AsyncCheckpointWriter();
  AsyncCheckpointWriter(const AsyncCheckpointWriter&) = delete;
  AsyncCheckpointWriter& operator=(const AsyncCheckpointWriter&) = delete;

  /// Copies everything `snapshot` refers to (one memcpy of it) and starts writing it; the tensors may change
  /// as soon as this returns. Waits first until the save before has ended. Throws that save's error, if it
  /// failed
  /// (`snapshot` is then not taken); SystemError(ETIMEDOUT) when `deadline` passes; UsageError as
  /// write_safetensors.
  void save(const Snapshot& snapshot, const Deadline& deadline);

  /// Waits until the save in flight is durable. Throws as save().
  void flush(const Deadline& deadline);

  /// Step of the newest checkpoint known to be durable; empty before the first.
  std::optional<std::int64_t> durable_step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
