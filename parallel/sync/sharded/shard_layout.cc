#include "parallel/sync/sharded/shard_layout.h"

#include <algorithm>
#include <utility>

namespace dtrain {
namespace {

constexpr std::size_t kAlign = 16, kLeastAligned = 64;

}  // namespace

std::size_t equal_length(std::size_t count, int ranks) {
  const auto parts = static_cast<std::size_t>(ranks);
  const std::size_t least = (count + parts - 1) / parts;
  return count < kLeastAligned * parts ? least : (least + kAlign - 1) / kAlign * kAlign;
}

ShardRange owned_range(std::size_t count, int rank, int ranks, ShardCut how) {
  const auto parts = static_cast<std::size_t>(ranks);
  if (how == ShardCut::equal) {
    const std::size_t length = equal_length(count, ranks);
    const std::size_t begin = std::min(count, static_cast<std::size_t>(rank) * length);
    return {begin, std::min(length, count - begin)};
  }
  const auto cut = [&](std::size_t at) {
    if (at == parts) return count;
    const std::size_t place = count / parts * at + count % parts * at / parts;
    return count < kLeastAligned * parts ? place : place / kAlign * kAlign;
  };
  const std::size_t begin = cut(static_cast<std::size_t>(rank));
  return {begin, cut(static_cast<std::size_t>(rank) + 1) - begin};
}

std::vector<ShardBucket> lay_out_shards(std::span<const GradientSlot> slots,
                                        std::span<const std::size_t> order, int ranks, std::size_t most_bytes,
                                        ShardCut cut, std::span<const std::size_t> last_of_bucket) {
  std::vector<ShardBucket> buckets;
  ShardBucket open;
  const auto close = [&] {
    if (!open.cells.empty()) buckets.push_back(std::exchange(open, {}));
  };
  for (const std::size_t slot : order) {
    const DType dtype = slots[slot].dtype;
    if (dtype != open.dtype) close();
    open.dtype = dtype;
    const std::size_t most =
        std::max<std::size_t>(1, most_bytes / size_of(dtype) / static_cast<std::size_t>(ranks));
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks; ++rank)
      longest = std::max(longest, owned_range(slots[slot].count, rank, ranks, cut).count);
    for (std::size_t first = 0; first < longest;) {
      if (open.part == most) {
        close();
        open.dtype = dtype;
      }
      const std::size_t count = std::min(longest - first, most - open.part);
      open.cells.push_back({slot, first, count, open.part});
      open.part += count;
      first += count;
    }
    if (std::ranges::find(last_of_bucket, slot) != last_of_bucket.end()) close();
  }
  close();
  return buckets;
}

}  // namespace dtrain
