#include "parallel/sync/sharded/optimizer_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Smaller parameters travel together, in parcels of at most this.
constexpr std::size_t kMostPackedBytes = 1U << 20;

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
}

// A parcel is in the memory of one device, of which a process may have several.
bool are_packed_alike(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shared_device() == b.shared_device();
}

// Frozen ones have no state, and do not travel.
std::size_t updated_bytes(const Tensor& tensor) { return tensor.requires_grad() ? bytes_of(tensor) : 0; }

}  // namespace

std::vector<int> deal_out(const NamedTensors& parameters, int ranks) {
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

DealtParameters::DealtParameters(const NamedTensors& parameters, Communicator& ranks)
    : ranks_(ranks), all_(parameters) {
  if (all_.size() < static_cast<std::size_t>(ranks.size())) {
    throw UsageError(fmt::format(
        "optimizer dealt out: expected a parameter for each of the {} workers that hold the same part of the "
        "network, got {} parameters; use fewer workers, or give each the whole optimizer",
        ranks.size(), all_.size()));
  }
  const std::vector<int> owners = deal_out(all_, ranks.size());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (owners[i] == ranks.rank()) own_.push_back(all_[i]);
  }
  lay_out(owners);
}

void DealtParameters::lay_out(const std::vector<int>& owners) {
  std::vector<std::size_t> open(static_cast<std::size_t>(ranks_.size()), SIZE_MAX);  // an owner's last parcel
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const std::size_t bytes = updated_bytes(all_[i].second);
    if (bytes == 0) continue;
    std::size_t& last = open[static_cast<std::size_t>(owners[i])];
    const bool fits = last != SIZE_MAX && parcels_[last].bytes + bytes <= kMostPackedBytes &&
                      are_packed_alike(all_[parcels_[last].parameters[0]].second, all_[i].second);
    if (!fits) {
      last = parcels_.size();
      parcels_.push_back({.owner = owners[i]});
    }
    parcels_[last].parameters.push_back(i);
    parcels_[last].bytes += bytes;
  }
  for (Parcel& parcel : parcels_) {
    if (parcel.parameters.size() == 1) continue;
    const Tensor& first = all_[parcel.parameters[0]].second;
    const auto elements = static_cast<std::int64_t>(parcel.bytes / size_of(first.dtype()));
    parcel.packed = Tensor::empty({elements}, first.shared_device(), first.dtype());
  }
}

void DealtParameters::hand_over(const Deadline& deadline) {
  if (ranks_.size() == 1) return;
  const NoGrad no_grad;
  std::vector<std::unique_ptr<Work>> works;
  for (const Parcel& parcel : parcels_) {
    const auto& [name, first] = all_[parcel.parameters[0]];
    if (parcel.packed.defined() && parcel.owner == ranks_.rank()) pack(parcel);
    works.push_back(ranks_.broadcast(span_of(parcel.packed.defined() ? parcel.packed : first), parcel.owner,
                                     "updated " + name));
  }
  for (auto& work : works) work->wait(deadline);
  for (const Parcel& parcel : parcels_) {
    if (parcel.owner == ranks_.rank()) continue;
    if (parcel.packed.defined()) unpack(parcel);
    for (const std::size_t i : parcel.parameters) all_[i].second.mark_modified();
  }
}

void DealtParameters::pack(const Parcel& parcel) const {
  std::int64_t at = 0;
  for (const std::size_t i : parcel.parameters) {
    const Tensor& parameter = all_[i].second;
    parcel.packed.slice(0, at, at + parameter.numel()).copy_from(parameter.detach().reshape({-1}));
    at += parameter.numel();
  }
}

void DealtParameters::unpack(const Parcel& parcel) const {
  std::int64_t at = 0;
  for (const std::size_t i : parcel.parameters) {
    const Tensor& parameter = all_[i].second;
    parameter.detach().reshape({-1}).copy_from(parcel.packed.slice(0, at, at + parameter.numel()));
    at += parameter.numel();
  }
}

}  // namespace dtrain
