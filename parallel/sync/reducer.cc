#include "parallel/sync/reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

// "bucket 2 (fc2.bias to conv1.weight)": in the order of arrival.
std::string label_of(std::size_t index, const BucketLayout& layout, const std::vector<GradientSlot>& slots) {
  const std::string& first = slots[layout.slots.front()].name;
  if (layout.slots.size() == 1) return fmt::format("bucket {} ({})", index, first);
  return fmt::format("bucket {} ({} to {})", index, first, slots[layout.slots.back()].name);
}

void check_order(const std::vector<std::size_t>& order, std::size_t count) {
  std::vector<bool> seen(count);
  for (const std::size_t index : order) {
    if (index < count && !seen[index]) {
      seen[index] = true;
      continue;
    }
    throw UsageError(fmt::format("reducer: arrival order must name each of {} gradients once, got {} {}",
                                 count, index, index < count ? "twice" : "out of range"));
  }
  if (order.size() != count) {
    throw UsageError(fmt::format("reducer: arrival order must name each of {} gradients once, got {} of them",
                                 count, order.size()));
  }
}

}  // namespace

Reducer::Reducer(Communicator& communicator, std::shared_ptr<Device> device, std::vector<GradientSlot> slots,
                 ReducerOptions options)
    : communicator_(communicator),
      device_(std::move(device)),
      exchange_(std::move(options.exchange)),
      owner_(std::move(options.owner)),
      slots_(std::move(slots)),
      places_(slots_.size()),
      ready_(slots_.size()),
      touched_(slots_.size()),
      used_(slots_.size()) {
  if (options.arrival_order.empty()) options.arrival_order = reverse_order(slots_.size());
  check_order(options.arrival_order, slots_.size());
  for (BucketLayout& layout : lay_out_buckets(slots_, options.arrival_order, options.buckets)) {
    Bucket bucket;
    const std::size_t bytes = layout.bytes();
    bucket.memory = std::shared_ptr<void>(device_->allocate(bytes), [device = device_, bytes](void* memory) {
      device->deallocate(memory, bytes);
    });
    device_->kernels().fill(flat_view(bucket.memory.get(), layout.dtype, layout.count), 0.0);
    for (std::size_t i = 0; i < layout.slots.size(); ++i) {
      places_[layout.slots[i]] = {buckets_.size(), layout.offsets[i]};
    }
    bucket.label = label_of(buckets_.size(), layout, slots_);
    bucket.layout = std::move(layout);
    buckets_.push_back(std::move(bucket));
  }
  begin_step();
}

Reducer::~Reducer() {
  for (Bucket& bucket : buckets_) {
    if (!bucket.work) continue;
    try {
      bucket.work->wait(Deadline::after(kDestructionWait));
    } catch (const std::exception&) {
      // Failed is finished: nothing touches the memory any more.
    }
  }
}

void Reducer::begin_step() {
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.layout.slots.size();
    bucket.work.reset();
  }
  std::fill(ready_.begin(), ready_.end(), false);
  std::fill(touched_.begin(), touched_.end(), false);
  next_ = 0;
}

View Reducer::gradient(std::size_t index) const {
  const Place& place = places_.at(index);
  const GradientSlot& slot = slots_[index];
  return flat_view(offset_by(buckets_[place.bucket].memory.get(), place.offset, slot.dtype), slot.dtype,
                   slot.count);
}

std::shared_ptr<void> Reducer::memory_of(std::size_t index) const {
  return buckets_[places_.at(index).bucket].memory;
}

void Reducer::mark_ready(std::size_t index) {
  touched_.at(index) = true;
  if (!sync_) return;
  if (ready_[index]) {
    throw UsageError(fmt::format(
        "gradient '{}' became ready twice in one step of {}; run every backward but the last one "
        "that reaches it under the no_sync() of its DataParallel, and call its finish() after each "
        "step",
        slots_[index].name, owner_));
  }
  ready_[index] = true;
  --buckets_[places_[index].bucket].missing;
  launch_full_buckets();
}

void Reducer::launch_full_buckets() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) launch(next_++);
}

void Reducer::launch(std::size_t index) {
  Bucket& bucket = buckets_[index];
  const BucketLayout& layout = bucket.layout;
  if (index == 0) first_launch_ = steady_clock().now();
  if (communicator_.size() > 1) {
    const View all = flat_view(bucket.memory.get(), layout.dtype, layout.count);
    device_->kernels().affine(all, 1.0 / communicator_.size(), 0.0, all);
  }
  const MemorySpan span{bucket.memory.get(), layout.count, layout.dtype, device_.get(), nullptr};
  bucket.work = exchange_
                    ? exchange_->begin(communicator_, {span, device_, index, bucket.label, layout, slots_})
                    : communicator_.all_reduce(span, ReduceOp::sum, bucket.label);
  stats_.bytes += layout.bytes();
}

void Reducer::finish(const Deadline& deadline) {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!touched_[index]) device_->kernels().fill(gradient(index), 0.0);
  }
  used_ = touched_;
  while (next_ < buckets_.size()) launch(next_++);
  const TimePoint wait_start = steady_clock().now();
  for (Bucket& bucket : buckets_) {
    if (bucket.work) bucket.work->wait(deadline);
  }
  const TimePoint end = steady_clock().now();
  ++stats_.steps;
  stats_.exposed += end - wait_start;
  if (!buckets_.empty()) stats_.window += end - first_launch_;
  begin_step();
}

}  // namespace dtrain
