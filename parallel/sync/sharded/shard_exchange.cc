#include "parallel/sync/sharded/shard_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/sync/buckets.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// `count` elements of one-dimensional `memory` from `first` on.
View part_of(const View& memory, std::size_t first, std::size_t count) {
  View part = memory;
  part.data = static_cast<std::byte*>(memory.data) + first * size_of(memory.dtype);
  part.shape = {static_cast<std::int64_t>(count)};
  part.strides = {1};
  return part;
}

View flat(const Tensor& tensor) { return {tensor.view().data, tensor.dtype(), {tensor.numel()}, {1}}; }

}  // namespace

ShardExchange::ShardExchange(Communicator& communicator, const NamedTensors& parameters,
                             const ShardOptions& options, std::span<const std::size_t> last_of_bucket,
                             std::span<const std::size_t> firsts_of_passes)
    : communicator_(communicator), options_(options), parameters_(parameters) {
  for (const auto& [name, tensor] : parameters_) {
    if (!tensor.is_contiguous() || tensor.shared_device() != parameters_.front().second.shared_device()) {
      throw UsageError(fmt::format(
          "sharded data parallel: expected parameters in row-major order on one device, got '{}' ({}) on {}",
          name, tensor.describe(), tensor.device().name()));
    }
    slots_.push_back({name, static_cast<std::size_t>(tensor.numel()), tensor.dtype()});
  }
  lay_out(last_of_bucket, firsts_of_passes);
  std::size_t most_bytes = 0;
  for (const ShardBucket& bucket : buckets_) most_bytes = std::max(most_bytes, bucket.bytes(ranks()));
  const auto& device = parameters_.front().second.shared_device();
  for (Staging& staging : staging_)
    staging.memory = Tensor::empty({static_cast<std::int64_t>(most_bytes)}, device, DType::u8);
  owned_gradients_.resize(slots_.size());
  for (std::size_t i = 0; keeps_own() && i < slots_.size(); ++i) {
    if (owned(i).count > 0)
      owned_gradients_[i] =
          Tensor::zeros({static_cast<std::int64_t>(owned(i).count)}, device, slots_[i].dtype);
  }
  begin_step();
}

// Buckets come last parameter first, and so do the passes' in buckets_; none has parameters of two.
void ShardExchange::lay_out(std::span<const std::size_t> last_of_bucket,
                            std::span<const std::size_t> firsts_of_passes) {
  std::vector<std::size_t> last(last_of_bucket.begin(), last_of_bucket.end());
  last.insert(last.end(), firsts_of_passes.begin(), firsts_of_passes.end());
  buckets_ =
      lay_out_shards(slots_, reverse_order(slots_.size()), ranks(), options_.bucket_bytes, cut(), last);
  passes_.resize(std::max<std::size_t>(firsts_of_passes.size(), 1));
  for (std::size_t slot = 0, pass = 0; slot < slots_.size(); ++slot) {
    while (pass + 1 < firsts_of_passes.size() && slot == firsts_of_passes[pass + 1]) ++pass;
    pass_of_.push_back(pass);
  }
  last_bucket_.resize(slots_.size());
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    PassBuckets& pass = passes_[pass_of_[buckets_[i].cells.front().slot]];
    pass.begin = i;
    pass.end = std::max(pass.end, i + 1);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const ShardCell& cell : buckets_[i].cells) last_bucket_[cell.slot] = i;
  }
}

ShardExchange::~ShardExchange() {
  for (Staging& staging : staging_) {
    if (!staging.work) continue;
    try {
      staging.work->wait(Deadline::after(kDestructionWait));
    } catch (const std::exception&) {
      // Failed is finished: nothing touches the memory any more.
    }
  }
}

ShardRange ShardExchange::owned(std::size_t index) const { return range(index, communicator_.rank()); }

void ShardExchange::begin_step() {
  for (PassBuckets& pass : passes_) pass.has_gradients = false;
  forget_ready();
  begin_pass(true);
}

void ShardExchange::forget_ready() {
  ready_.assign(slots_.size(), false);
  missing_.clear();
  for (const ShardBucket& bucket : buckets_) missing_.push_back(bucket.cells.size());
}

void ShardExchange::begin_pass(bool exchange, std::size_t pass) {
  sync_ = exchange;
  pass_ = pass;
  next_ = passes_.at(pass).begin;
}

void ShardExchange::mark_ready(std::size_t index) {
  if (!sync_ || pass_of_[index] != pass_) return;
  if (ready_[index]) {
    throw UsageError(
        fmt::format("gradient '{}' became ready twice in one micro-batch; end each micro-batch that is "
                    "exchanged with finish_pass()",
                    slots_[index].name));
  }
  ready_[index] = true;
  for (std::size_t i = next_; i <= last_bucket_[index] && i < buckets_.size(); ++i) {
    const auto& cells = buckets_[i].cells;
    const bool has =
        std::any_of(cells.begin(), cells.end(), [&](const ShardCell& cell) { return cell.slot == index; });
    if (has) --missing_[i];
  }
  while (next_ < passes_[pass_].end && missing_[next_] == 0) launch(next_++);
}

void ShardExchange::launch(std::size_t index) {
  Staging& staging = staging_[index % 2];
  land(staging);
  const ShardBucket& bucket = buckets_[index];
  const View memory = memory_for(staging, bucket);
  pack_gradients(bucket, memory);
  free_gradients(bucket);
  staging.bucket = index;
  staging.work =
      communicator_.reduce_scatter(whole_span(memory), span_of_part(memory, bucket, communicator_.rank()),
                                   ReduceOp::sum, label("gradients", index));
  stats_.reduced_bytes += bucket.bytes(ranks());
}

// Divided by the number of ranks before the sum, as in DDP.
void ShardExchange::pack_gradients(const ShardBucket& bucket, const View& memory) {
  Kernels& kernels = staging_[0].memory.device().kernels();
  for (const ShardCell& cell : bucket.cells) {
    const Tensor gradient = flat_gradient(cell.slot, false);
    for (int rank = 0; rank < ranks(); ++rank) {
      const ShardRange range = this->range(cell.slot, rank);
      const std::size_t count = cell.first < range.count ? std::min(cell.count, range.count - cell.first) : 0;
      const std::size_t place = static_cast<std::size_t>(rank) * bucket.part + cell.offset;
      const View target = part_of(memory, place, count);
      if (count < cell.count) kernels.fill(part_of(memory, place + count, cell.count - count), 0.0);
      if (count == 0) continue;
      if (!gradient.defined()) {
        kernels.fill(target, 0.0);
      } else {
        const View source = part_of(flat(gradient), range.first + cell.first, count);
        ranks() > 1 ? kernels.affine(source, 1.0 / ranks(), 0.0, target) : kernels.copy(source, target);
      }
    }
  }
}

// Once the last of it is packed, a gradient is not needed any more.
void ShardExchange::free_gradients(const ShardBucket& bucket) {
  if (!keeps_own()) return;
  const auto index = static_cast<std::size_t>(&bucket - buckets_.data());
  for (const ShardCell& cell : bucket.cells) {
    if (last_bucket_[cell.slot] == index) parameters_[cell.slot].second.zero_grad();
  }
}

// Waits for what is under way in `staging` and takes what it brought.
void ShardExchange::land(Staging& staging) {
  if (!staging.work) return;
  const std::unique_ptr<Work> work = std::move(staging.work);
  work->wait(patience());
  const ShardBucket& bucket = buckets_[staging.bucket];
  const View memory = memory_for(staging, bucket);
  take_gradients(bucket,
                 part_of(memory, static_cast<std::size_t>(communicator_.rank()) * bucket.part, bucket.part));
}

void ShardExchange::take_gradients(const ShardBucket& bucket, const View& own) {
  Kernels& kernels = staging_[0].memory.device().kernels();
  for (const ShardCell& cell : bucket.cells) {
    const ShardRange range = owned(cell.slot);
    if (cell.first >= range.count) continue;
    const std::size_t count = std::min(cell.count, range.count - cell.first);
    const View source = part_of(own, cell.offset, count);
    if (keeps_own()) {
      const View target = part_of(flat(owned_gradients_[cell.slot]), cell.first, count);
      passes_[pass_].has_gradients ? kernels.accumulate(source, 1.0, target) : kernels.copy(source, target);
      owned_gradients_[cell.slot].mark_modified();
    } else {
      const Tensor gradient = flat_gradient(cell.slot, true);
      kernels.copy(source, part_of(flat(gradient), range.first + cell.first, count));
      gradient.mark_modified();
    }
  }
}

// `make`: where the parameter has none yet, one of zeros.
Tensor ShardExchange::flat_gradient(std::size_t index, bool make) const {
  Tensor parameter = parameters_[index].second;
  if (!parameter.grad().defined() && make)
    parameter.set_grad(Tensor::zeros(parameter.shape(), parameter.shared_device(), parameter.dtype()));
  const Tensor gradient = parameter.grad();
  return gradient.defined() ? gradient.contiguous() : gradient;
}

void ShardExchange::finish_pass() {
  const NoGrad no_grad;
  PassBuckets& pass = passes_[pass_];
  while (next_ < pass.end) launch(next_++);
  for (std::size_t i = 0; i < staging_.size(); ++i) land(staging_[(pass.end + i) % 2]);
  pass.has_gradients = keeps_own();
  forget_ready();
  begin_pass(true);
}

Tensor ShardExchange::owned_gradient(std::size_t index) const {
  if (keeps_own()) return owned_gradients_[index];
  const ShardRange range = owned(index);
  const Tensor gradient = flat_gradient(index, true);
  const View own = part_of(flat(gradient), range.first, range.count);
  return gradient.alias(own.data, own.shape, own.strides);
}

void ShardExchange::gather_parameters() {
  if (ranks() == 1) return;
  const NoGrad no_grad;
  Kernels& kernels = staging_[0].memory.device().kernels();
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    Staging& staging = staging_[index % 2];
    take_parameters(staging);
    const ShardBucket& bucket = buckets_[index];
    const View memory = memory_for(staging, bucket);
    const View own =
        part_of(memory, static_cast<std::size_t>(communicator_.rank()) * bucket.part, bucket.part);
    for (const ShardCell& cell : bucket.cells) {
      const ShardRange range = owned(cell.slot);
      const std::size_t count = cell.first < range.count ? std::min(cell.count, range.count - cell.first) : 0;
      if (count < cell.count) kernels.fill(part_of(own, cell.offset + count, cell.count - count), 0.0);
      if (count == 0) continue;
      kernels.copy(part_of(flat(parameters_[cell.slot].second), range.first + cell.first, count),
                   part_of(own, cell.offset, count));
    }
    staging.bucket = index;
    staging.work = communicator_.all_gather(span_of_part(memory, bucket, communicator_.rank()),
                                            whole_span(memory), label("parameters", index));
    stats_.gathered_bytes += bucket.bytes(ranks());
  }
  for (std::size_t i = 0; i < staging_.size(); ++i) take_parameters(staging_[(buckets_.size() + i) % 2]);
  for (const auto& [name, tensor] : parameters_) tensor.mark_modified();
}

void ShardExchange::take_parameters(Staging& staging) {
  if (!staging.work) return;
  const std::unique_ptr<Work> work = std::move(staging.work);
  work->wait(patience());
  Kernels& kernels = staging.memory.device().kernels();
  const ShardBucket& bucket = buckets_[staging.bucket];
  const View memory = memory_for(staging, bucket);
  for (const ShardCell& cell : bucket.cells) {
    for (int rank = 0; rank < ranks(); ++rank) {
      const ShardRange range = this->range(cell.slot, rank);
      if (rank == communicator_.rank() || cell.first >= range.count) continue;
      const std::size_t count = std::min(cell.count, range.count - cell.first);
      kernels.copy(part_of(memory, static_cast<std::size_t>(rank) * bucket.part + cell.offset, count),
                   part_of(flat(parameters_[cell.slot].second), range.first + cell.first, count));
    }
  }
}

void ShardExchange::exchange_nothing(const Deadline& deadline) {
  // Parameters that are split are gathered before forward and again before backward.
  const std::size_t rounds = options_.stage == ShardStage::parameters ? 3 : 2;
  for (std::size_t index = 0; index < rounds * buckets_.size(); ++index) {
    Staging& staging = staging_[index % 2];
    if (staging.work) std::exchange(staging.work, nullptr)->wait(deadline);
    const ShardBucket& bucket = buckets_[index % buckets_.size()];
    const View memory = memory_for(staging, bucket);
    const MemorySpan own = span_of_part(memory, bucket, communicator_.rank());
    staging.work =
        index < buckets_.size()
            ? communicator_.reduce_scatter(whole_span(memory), own, ReduceOp::max, label("idle", index))
            : communicator_.all_gather(own, whole_span(memory), label("idle", index));
  }
  for (Staging& staging : staging_) {
    if (staging.work) std::exchange(staging.work, nullptr)->wait(deadline);
  }
}

View ShardExchange::memory_for(Staging& staging, const ShardBucket& bucket) const {
  const auto count = static_cast<std::int64_t>(bucket.part) * ranks();
  return {staging.memory.view().data, bucket.dtype, {count}, {1}};
}

MemorySpan ShardExchange::whole_span(const View& memory) const {
  return {.data = memory.data,
          .count = static_cast<std::size_t>(memory.numel()),
          .dtype = memory.dtype,
          .device = &staging_[0].memory.device()};
}

MemorySpan ShardExchange::span_of_part(const View& memory, const ShardBucket& bucket, int rank) const {
  return whole_span(part_of(memory, static_cast<std::size_t>(rank) * bucket.part, bucket.part));
}

std::string ShardExchange::label(std::string_view what, std::size_t bucket) const {
  const auto& cells = buckets_[bucket % buckets_.size()].cells;
  return fmt::format("{} of bucket {} ({} to {})", what, bucket, slots_[cells.front().slot].name,
                     slots_[cells.back().slot].name);
}

}  // namespace dtrain
