#include "runtime/device/cuda/memory/slot_tables.h"

#include <algorithm>
#include <cstring>

namespace dtrain::cuda {
namespace {

constexpr std::size_t kMostTables = 64;  // groups of all optimizers of one process, times their dtypes

}  // namespace

SlotTable SlotTables::find(const std::vector<SlotEntry>& entries) {
  const auto table_of = [](const Kept& kept) {
    const auto* const first = static_cast<const SlotEntry*>(kept.memory->data());
    return SlotTable{first, reinterpret_cast<const SlotChunk*>(first + kept.entries.size()),
                     kept.chunk_count};
  };
  cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(context_.stream, &recording), "ask whether a stream is being recorded");
  for (Kept& kept : kept_) {
    if (kept.entries != entries) continue;
    kept.recorded = kept.recorded || recording != cudaStreamCaptureStatusNone;
    return table_of(kept);
  }
  if (recording != cudaStreamCaptureStatusNone) {
    throw DeviceError(
        "cuda: the optimizer meets these parameters, or gradients at these addresses, for the first time "
        "while a graph is recorded; run a step before",
        static_cast<int>(cudaErrorStreamCaptureUnsupported));
  }
  const std::vector<SlotChunk> chunks = cut_into_chunks(entries);
  if (chunks.empty()) return {};
  const std::size_t entry_bytes = entries.size() * sizeof(SlotEntry);
  const std::size_t bytes = entry_bytes + chunks.size() * sizeof(SlotChunk);
  Kept kept;
  kept.entries = entries;
  kept.chunk_count = static_cast<std::int64_t>(chunks.size());
  void* staging = nullptr;
  check(cudaHostAlloc(&staging, bytes, cudaHostAllocPortable), "allocate pinned memory");
  kept.staging.reset(staging);
  std::memcpy(staging, entries.data(), entry_bytes);
  std::memcpy(static_cast<std::byte*>(staging) + entry_bytes, chunks.data(), bytes - entry_bytes);
  kept.memory = std::make_unique<Scratch>(context_.memory, bytes);
  check(cudaMemcpyAsync(kept.memory->data(), staging, bytes, cudaMemcpyHostToDevice, context_.stream),
        "copy the optimizer's table");
  make_room();
  kept_.push_back(std::move(kept));
  return table_of(kept_.back());
}

void SlotTables::make_room() {
  if (kept_.size() < kMostTables) return;
  const auto oldest =
      std::find_if(kept_.begin(), kept_.end(), [](const Kept& kept) { return !kept.recorded; });
  if (oldest == kept_.end()) return;
  check(cudaStreamSynchronize(context_.stream), "wait before a table goes");  // its staging may be in use
  kept_.erase(oldest);
}

}  // namespace dtrain::cuda
