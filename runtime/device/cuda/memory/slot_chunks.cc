#include "runtime/device/cuda/memory/slot_tables.h"

namespace dtrain::cuda {

std::vector<SlotChunk> cut_into_chunks(std::span<const SlotEntry> entries) {
  std::vector<SlotChunk> chunks;
  for (std::size_t slot = 0; slot < entries.size(); ++slot) {
    for (std::int64_t begin = 0; begin < entries[slot].count; begin += kChunkElements)
      chunks.push_back({begin, static_cast<std::int64_t>(slot)});
  }
  return chunks;
}

}  // namespace dtrain::cuda
