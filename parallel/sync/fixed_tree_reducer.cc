#include "parallel/sync/fixed_tree_reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::size_t kSliceMultiple = 16;  // elements; for the sake of vector loads
constexpr std::size_t kBlock = 1U << 14;    // elements added up at a time: they stay in a core's cache

std::size_t slice_of(std::size_t count, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  const std::size_t even = (count + size - 1) / size;
  return (even + kSliceMultiple - 1) / kSliceMultiple * kSliceMultiple;
}

}  // namespace

FixedTreeReducer::FixedTreeReducer(Communicator& communicator, std::shared_ptr<Device> device,
                                   std::vector<GradientSlot> slots, int parts, const BucketOptions& options)
    : communicator_(communicator),
      device_(std::move(device)),
      slots_(std::move(slots)),
      parts_(parts),
      run_(micro_batches_of(parts, communicator.rank(), communicator.size())),
      places_(slots_.size()),
      ready_(slots_.size()),
      part_(run_.first - 1) {
  if (parts < communicator.size()) {
    throw UsageError(
        fmt::format("virtual workers: expected at least one micro-batch for each of {} ranks, got {}",
                    communicator.size(), parts));
  }
  for (int rank = 0; rank < communicator.size(); ++rank)
    nodes_.push_back(nodes_within(parts, micro_batches_of(parts, rank, communicator.size())));
  for (const auto& nodes : nodes_) all_nodes_ += nodes.size();
  for (BucketLayout& layout : lay_out_buckets(slots_, reverse_order(slots_.size()), options)) {
    Bucket bucket;
    bucket.slice = slice_of(layout.count, communicator.size());
    for (std::size_t i = 0; i < layout.slots.size(); ++i)
      places_[layout.slots[i]] = {buckets_.size(), layout.offsets[i]};
    bucket.label = fmt::format("parts of bucket {} ({})", buckets_.size(), slots_[layout.slots.front()].name);
    bucket.layout = std::move(layout);
    bucket.memory = take_spare(bucket);
    buckets_.push_back(std::move(bucket));
  }
}

FixedTreeReducer::~FixedTreeReducer() {
  for (Bucket& bucket : buckets_) {
    if (!bucket.work) continue;
    try {
      bucket.work->wait(Deadline::after(kDestructionWait));
    } catch (const std::exception&) {
      // Failed is finished: nothing touches the memory any more.
    }
  }
}

std::shared_ptr<void> FixedTreeReducer::allocate(std::size_t elements, DType dtype) const {
  const std::size_t bytes = elements * size_of(dtype);
  return {device_->allocate(bytes),
          [device = device_, bytes](void* memory) { device->deallocate(memory, bytes); }};
}

std::shared_ptr<void> FixedTreeReducer::take_spare(Bucket& bucket) const {
  if (bucket.spare.empty()) {
    auto memory = allocate(elements_of(bucket), bucket.layout.dtype);
    // What lies between the gradients is added up and sent along with them; nobody reads it.
    device_->kernels().fill(flat_view(memory.get(), bucket.layout.dtype, elements_of(bucket)), 0.0);
    return memory;
  }
  auto memory = std::move(bucket.spare.back());
  bucket.spare.pop_back();
  return memory;
}

// Adding the sums on the left to what is in the bucket's own memory, rather than the other way round, leaves
// nothing to be copied: a + b and b + a are the same bits. All sums of a block are formed before the next
// block's, so that memory is read once.
MicroBatchRange FixedTreeReducer::join_left(Bucket& bucket) {
  MicroBatchRange node{part_, part_ + 1};
  std::vector<std::shared_ptr<void>> joined;
  while (!bucket.sums.empty() && are_siblings(parts_, bucket.sums.back().node, node)) {
    node.first = bucket.sums.back().node.first;
    joined.push_back(std::move(bucket.sums.back().memory));
    bucket.sums.pop_back();
  }
  if (joined.empty()) return node;
  const DType dtype = bucket.layout.dtype;
  const std::size_t all = elements_of(bucket);
  // A GPU would rather have one kernel for all.
  const std::size_t block = device_->type() == DeviceType::cpu ? kBlock : all;
  for (std::size_t first = 0; first < all; first += block) {
    const std::size_t count = std::min(block, all - first);
    const View sum = flat_view(offset_by(bucket.memory.get(), first, dtype), dtype, count);
    for (const auto& left : joined) {
      device_->kernels().binary(BinaryOp::add, sum,
                                flat_view(offset_by(left.get(), first, dtype), dtype, count), sum);
    }
  }
  for (auto& memory : joined) bucket.spare.push_back(std::move(memory));
  return node;
}

View FixedTreeReducer::gradient(std::size_t index) const {
  const Place& place = places_.at(index);
  const GradientSlot& slot = slots_[index];
  return flat_view(offset_by(buckets_[place.bucket].memory.get(), place.offset, slot.dtype), slot.dtype,
                   slot.count);
}

std::shared_ptr<void> FixedTreeReducer::memory_of(std::size_t index) const {
  return buckets_[places_.at(index).bucket].memory;
}

void FixedTreeReducer::begin_pass() {
  ++part_;
  std::fill(ready_.begin(), ready_.end(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.layout.slots.size();
}

void FixedTreeReducer::mark_ready(std::size_t index) {
  if (ready_.at(index)) {
    throw UsageError(fmt::format(
        "gradient '{}' became ready twice in one micro-batch; expected one backward pass for each",
        slots_[index].name));
  }
  ready_[index] = true;
  --buckets_[places_[index].bucket].missing;
  if (in_last_pass()) launch_full_buckets();
}

void FixedTreeReducer::end_pass() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!ready_[index]) device_->kernels().fill(gradient(index), 0.0);
  }
  if (!in_last_pass()) {
    for (Bucket& bucket : buckets_) keep(bucket);
    return;
  }
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  launch_full_buckets();
}

// The sum stays where the part's gradients are; the next part's go elsewhere.
void FixedTreeReducer::keep(Bucket& bucket) {
  const MicroBatchRange node = join_left(bucket);
  bucket.sums.push_back({node, std::move(bucket.memory)});
  bucket.memory = take_spare(bucket);
}

void FixedTreeReducer::launch_full_buckets() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) launch(buckets_[next_++]);
}

// The last part joins the sums on its left; what remains are this rank's nodes, the last of them in the
// bucket's own memory.
void FixedTreeReducer::launch(Bucket& bucket) {
  join_left(bucket);
  const auto& sums = bucket.sums;
  if (communicator_.size() == 1) return;

  const DType dtype = bucket.layout.dtype;
  const std::size_t slice = bucket.slice, own = sums.size() + 1;
  if (is_pair()) {
    bucket.work =
        communicator_.all_reduce({bucket.memory.get(), elements_of(bucket), dtype, device_.get(), nullptr},
                                 ReduceOp::sum, bucket.label);
    bytes_ += 2 * elements_of(bucket) * size_of(dtype);
    return;
  }
  std::vector<std::size_t> sent(nodes_.size(), own * slice), received;
  for (const auto& nodes : nodes_) received.push_back(nodes.size() * slice);
  void* from = bucket.memory.get();
  if (own > 1) {  // slice by slice, of all nodes
    bucket.outgoing = allocate(own * slice * nodes_.size(), dtype);
    from = bucket.outgoing.get();
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      for (std::size_t i = 0; i < own; ++i) {
        void* const sum = i < sums.size() ? sums[i].memory.get() : bucket.memory.get();
        device_->kernels().copy(flat_view(offset_by(sum, rank * slice, dtype), dtype, slice),
                                flat_view(offset_by(from, (rank * own + i) * slice, dtype), dtype, slice));
      }
    }
  }
  // Memory of a sum that was just added up is still in the cache.
  bucket.incoming = all_nodes_ == nodes_.size() ? take_spare(bucket) : allocate(all_nodes_ * slice, dtype);
  bucket.work = communicator_.all_to_all(
      {from, own * slice * nodes_.size(), dtype, device_.get(), nullptr}, sent,
      {bucket.incoming.get(), all_nodes_ * slice, dtype, device_.get(), nullptr}, received, bucket.label);
  // Sent and received: nodes' slices of and from the others, then the result's.
  bytes_ +=
      (own * (nodes_.size() - 1) + (all_nodes_ - own) + 2 * (nodes_.size() - 1)) * slice * size_of(dtype);
}

// This rank's slice of all nodes, added up in place: each sum is left where its left child was, the last one
// where all ranks gather from.
void FixedTreeReducer::add_incoming(Bucket& bucket) {
  struct Piece {
    MicroBatchRange node;
    std::size_t at;
  };
  const DType dtype = bucket.layout.dtype;
  const auto piece_view = [&](std::size_t at) {
    return flat_view(offset_by(bucket.incoming.get(), at * bucket.slice, dtype), dtype, bucket.slice);
  };
  const auto offset = static_cast<std::size_t>(communicator_.rank()) * bucket.slice;
  const View result = flat_view(offset_by(bucket.memory.get(), offset, dtype), dtype, bucket.slice);
  std::vector<Piece> sums;
  std::size_t at = 0;
  for (const auto& nodes : nodes_) {
    for (const MicroBatchRange& node : nodes) {
      sums.push_back({node, at++});
      while (sums.size() > 1 && are_siblings(parts_, sums[sums.size() - 2].node, sums.back().node)) {
        Piece& left = sums[sums.size() - 2];
        left.node.end = sums.back().node.end;
        device_->kernels().binary(BinaryOp::add, piece_view(left.at), piece_view(sums.back().at),
                                  left.node.count() == parts_ ? result : piece_view(left.at));
        sums.pop_back();
      }
    }
  }
}

void FixedTreeReducer::finish(const Deadline& deadline) {
  for (Bucket& bucket : buckets_) {
    if (communicator_.size() == 1 || is_pair()) break;
    bucket.work->wait(deadline);
    add_incoming(bucket);
    const auto offset = static_cast<std::size_t>(communicator_.rank()) * bucket.slice;
    const DType dtype = bucket.layout.dtype;
    const MemorySpan all{bucket.memory.get(), bucket.slice * nodes_.size(), dtype, device_.get(), nullptr};
    const MemorySpan own{offset_by(bucket.memory.get(), offset, dtype), bucket.slice, dtype, device_.get(),
                         nullptr};
    bucket.work = communicator_.all_gather(own, all, bucket.label);
  }
  for (Bucket& bucket : buckets_) {
    if (bucket.work) bucket.work->wait(deadline);
    bucket.work.reset();
    bucket.outgoing.reset();
    if (all_nodes_ == nodes_.size() && bucket.incoming) bucket.spare.push_back(std::move(bucket.incoming));
    bucket.incoming.reset();
    for (Sum& sum : bucket.sums) bucket.spare.push_back(std::move(sum.memory));
    bucket.sums.clear();
  }
  part_ = run_.first - 1;
  next_ = 0;
}

}  // namespace dtrain
