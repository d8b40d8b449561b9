#include "parallel/layout/replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "parallel/layout/saved_tensors.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checksum.h"

namespace dtrain {
namespace {

std::vector<std::int64_t> checksums(const NamedTensors& tensors) {
  NamedTensors dense;
  for (const auto& [name, tensor] : tensors) dense.emplace_back(name, tensor.detach().contiguous());
  const RankState host = on_host({whole(dense), {}});
  std::vector<std::int64_t> sums;
  for (const NamedShard& part : host.model) {
    const View view = part.tensor.view();
    const auto bytes = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
    sums.push_back(crc32({static_cast<const std::byte*>(view.data), bytes}));
  }
  return sums;
}

MemorySpan span_of(std::int64_t* values, std::size_t count) {
  return {.data = values, .count = count, .dtype = DType::i64};
}

/// Of all checksums: the greatest value and the greatest of its complement are each other's where all are
/// equal.
bool all_alike(const std::vector<std::int64_t>& sums, Communicator& group, const Deadline& deadline) {
  const std::int64_t all = crc32(std::as_bytes(std::span(sums)));
  std::array<std::int64_t, 2> extremes{all, -all};
  group.all_reduce(span_of(extremes.data(), extremes.size()), ReduceOp::max, "replicas")->wait(deadline);
  return extremes[0] == -extremes[1];
}

/// The ranks whose value is not the most frequent one; all, where no value is.
std::vector<int> outvoted(const std::vector<std::int64_t>& by_rank) {
  std::map<std::int64_t, std::size_t> votes;
  for (const std::int64_t value : by_rank) ++votes[value];
  std::size_t most = 0;
  for (const auto& [value, count] : votes) most = std::max(most, count);
  const bool tie = std::ranges::count_if(votes, [&](const auto& vote) { return vote.second == most; }) > 1;
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (tie || votes[by_rank[rank]] != most) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

[[noreturn]] void name_the_odd_one(const NamedTensors& tensors, std::vector<std::int64_t> sums,
                                   Communicator& group, const Deadline& deadline) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> all(sums.size() * size);
  group.all_gather(span_of(sums.data(), sums.size()), span_of(all.data(), all.size()), "replicas")
      ->wait(deadline);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::vector<std::int64_t> by_rank;
    for (std::size_t rank = 0; rank < size; ++rank) by_rank.push_back(all[rank * sums.size() + i]);
    if (std::ranges::count(by_rank, by_rank.front()) == static_cast<std::ptrdiff_t>(size)) continue;
    const std::vector<int> odd = outvoted(by_rank);
    throw ReplicaError(fmt::format(
        "replicas differ: expected {} to be the same on all {} ranks, got {:08x}; {}. Memory or a "
        "computation went wrong there; take the machine out if it happens again",
        tensors[i].first, size, fmt::join(by_rank, ", "),
        odd.size() == 1
            ? fmt::format("rank {} is not as the others", odd.front())
            : fmt::format("ranks {} differ, and which is right cannot be told", fmt::join(odd, ", "))));
  }
  throw ReplicaError(
      fmt::format("replicas differ: expected {} tensors alike on all ranks, got other names or another order",
                  tensors.size()));
}

}  // namespace

void check_replicas(const Replicas& replicas, const Deadline& deadline) {
  if (replicas.group == nullptr || replicas.group->size() == 1) return;
  const std::vector<std::int64_t> sums = checksums(replicas.tensors);
  if (!all_alike(sums, *replicas.group, deadline))
    name_the_odd_one(replicas.tensors, sums, *replicas.group, deadline);
}

}  // namespace dtrain
