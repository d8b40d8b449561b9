// The optimizer's list of parameters, laid out for one launch over all of them: a table in GPU memory of
// where each parameter is, cut into chunks of equal work. Uploaded when the list changes, which is once in a
// run.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "runtime/device/cuda/context.h"

namespace dtrain::cuda {

struct SlotEntry {
  void* param = nullptr;
  const void* grad = nullptr;
  void* momentum = nullptr;
  void* variance = nullptr;
  void* mean = nullptr;
  std::int64_t count = 0;  ///< elements
  bool operator==(const SlotEntry&) const = default;
};

/// Elements [begin, begin + kChunkElements) of a slot, as far as it has them: one block's work.
struct SlotChunk {
  std::int64_t begin = 0;
  std::int64_t slot = 0;
};
inline constexpr std::int64_t kChunkElements = 8192;

/// The chunks of `entries`, in order; empty slots have none.
std::vector<SlotChunk> cut_into_chunks(std::span<const SlotEntry> entries);

/// A table on the GPU.
struct SlotTable {
  const SlotEntry* entries = nullptr;
  const SlotChunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
};

/// Used by the device's thread only.
class SlotTables {
 public:
  explicit SlotTables(const Context& context) : context_(context) {}
  /// The table of `entries`, valid for what is queued until the next few calls with other entries, and for
  /// ever where a graph is being recorded; then the entries must have been met before. Throws DeviceError.
  SlotTable find(const std::vector<SlotEntry>& entries);

 private:
  struct Kept {
    std::vector<SlotEntry> entries;
    UniquePinned staging;  // the copy may still read it
    std::unique_ptr<Scratch> memory;
    std::int64_t chunk_count = 0;
    bool recorded = false;  // a graph reads it
  };
  void make_room();

  Context context_;
  std::deque<Kept> kept_;  // newest last
};

}  // namespace dtrain::cuda
