#include "parallel/sync/sharded/optimizer_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Smaller parameters travel together, in buckets of at most this.
constexpr std::size_t kMostPackedBytes = 1U << 20;

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
}

// A bucket is in the memory of one device, of which a process may have several.
bool are_packed_alike(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shared_device() == b.shared_device();
}

// Frozen ones have no state, and do not travel.
std::size_t updated_bytes(const Tensor& tensor) { return tensor.requires_grad() ? bytes_of(tensor) : 0; }

}  // namespace

std::vector<int> partition_by_bytes(const NamedTensors& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return updated_bytes(parameters[i].second); });
  std::vector<std::size_t> held(static_cast<std::size_t>(ranks)), count(held.size());
  std::vector<int> owners(parameters.size());
  for (const std::size_t i : order) {
    // Of equals who has fewer: parameters without elements, and frozen ones, are somebody's too.
    std::size_t least = 0;
    for (std::size_t rank = 1; rank < held.size(); ++rank) {
      if (std::pair(held[rank], count[rank]) < std::pair(held[least], count[least])) least = rank;
    }
    held[least] += updated_bytes(parameters[i].second);
    ++count[least];
    owners[i] = static_cast<int>(least);
  }
  return owners;
}

OptimizerPartition::OptimizerPartition(const NamedTensors& parameters, Communicator& ranks)
    : ranks_(ranks), all_(parameters) {
  if (all_.size() < static_cast<std::size_t>(ranks.size())) {
    throw UsageError(
        fmt::format("optimizer state partition: expected a parameter for each of the {} workers that hold "
                    "the same part of the "
                    "network, got {} parameters; use fewer workers, or give each worker the whole state",
                    ranks.size(), all_.size()));
  }
  const std::vector<int> owners = partition_by_bytes(all_, ranks.size());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (owners[i] == ranks.rank()) own_.push_back(all_[i]);
  }
  lay_out(owners);
}

void OptimizerPartition::lay_out(const std::vector<int>& owners) {
  std::vector<std::size_t> open(static_cast<std::size_t>(ranks_.size()), SIZE_MAX);  // an owner's last bucket
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const std::size_t bytes = updated_bytes(all_[i].second);
    if (bytes == 0) continue;
    std::size_t& last = open[static_cast<std::size_t>(owners[i])];
    const bool fits = last != SIZE_MAX && buckets_[last].bytes + bytes <= kMostPackedBytes &&
                      are_packed_alike(all_[buckets_[last].parameters[0]].second, all_[i].second);
    if (!fits) {
      last = buckets_.size();
      buckets_.push_back({.owner = owners[i]});
    }
    buckets_[last].parameters.push_back(i);
    buckets_[last].bytes += bytes;
  }
  for (Bucket& bucket : buckets_) {
    if (bucket.parameters.size() == 1) continue;
    const Tensor& first = all_[bucket.parameters[0]].second;
    const auto elements = static_cast<std::int64_t>(bucket.bytes / size_of(first.dtype()));
    bucket.packed = Tensor::empty({elements}, first.shared_device(), first.dtype());
  }
}

void OptimizerPartition::broadcast_updates(const Deadline& deadline) {
  if (ranks_.size() == 1) return;
  const NoGrad no_grad;
  std::vector<std::unique_ptr<Work>> works;
  for (const Bucket& bucket : buckets_) {
    const auto& [name, first] = all_[bucket.parameters[0]];
    if (bucket.packed.defined() && bucket.owner == ranks_.rank()) pack(bucket);
    works.push_back(ranks_.broadcast(span_of(bucket.packed.defined() ? bucket.packed : first), bucket.owner,
                                     "updated " + name));
  }
  for (auto& work : works) work->wait(deadline);
  for (const Bucket& bucket : buckets_) {
    if (bucket.owner == ranks_.rank()) continue;
    if (bucket.packed.defined()) unpack(bucket);
    for (const std::size_t i : bucket.parameters) all_[i].second.mark_modified();
  }
}

void OptimizerPartition::pack(const Bucket& bucket) const {
  std::int64_t at = 0;
  for (const std::size_t i : bucket.parameters) {
    const Tensor& parameter = all_[i].second;
    bucket.packed.slice(0, at, at + parameter.numel()).copy_from(parameter.detach().reshape({-1}));
    at += parameter.numel();
  }
}

void OptimizerPartition::unpack(const Bucket& bucket) const {
  std::int64_t at = 0;
  for (const std::size_t i : bucket.parameters) {
    const Tensor& parameter = all_[i].second;
    parameter.detach().reshape({-1}).copy_from(bucket.packed.slice(0, at, at + parameter.numel()));
    at += parameter.numel();
  }
}

}  // namespace dtrain
