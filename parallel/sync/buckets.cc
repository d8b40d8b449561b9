#include "parallel/sync/buckets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace dtrain {
namespace {

constexpr std::size_t kAlignBytes = 64;

struct OpenBucket {
  BucketLayout layout;
  std::size_t payload_bytes = 0;  // without padding: that is what the limit is about
  std::size_t opened_at = 0;
};

}  // namespace

std::vector<BucketLayout> lay_out_buckets(std::span<const GradientSlot> slots,
                                          std::span<const std::size_t> order, const BucketOptions& options) {
  std::map<DType, OpenBucket> open;
  std::map<DType, std::size_t> limits;
  std::vector<OpenBucket> closed;
  std::size_t place = 0;
  for (const std::size_t index : order) {
    const GradientSlot& slot = slots[index];
    OpenBucket& bucket = open[slot.dtype];
    if (bucket.layout.slots.empty()) {
      bucket.layout.dtype = slot.dtype;
      bucket.opened_at = place;
    }
    ++place;
    const std::size_t align = kAlignBytes / size_of(slot.dtype);
    bucket.layout.slots.push_back(index);
    bucket.layout.offsets.push_back(bucket.layout.count);
    bucket.layout.count += (slot.count + align - 1) / align * align;
    bucket.payload_bytes += slot.count * size_of(slot.dtype);
    const auto limit = limits.try_emplace(slot.dtype, options.first_bytes).first;
    if (bucket.payload_bytes >= limit->second) {
      closed.push_back(std::exchange(bucket, {}));
      limit->second = options.cap_bytes;
    }
  }
  for (auto& [dtype, bucket] : open) {
    if (!bucket.layout.slots.empty()) closed.push_back(std::move(bucket));
  }
  std::sort(closed.begin(), closed.end(),
            [](const OpenBucket& a, const OpenBucket& b) { return a.opened_at < b.opened_at; });
  std::vector<BucketLayout> buckets;
  for (OpenBucket& bucket : closed) buckets.push_back(std::move(bucket.layout));
  return buckets;
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

}  // namespace dtrain
