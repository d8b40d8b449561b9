#include "runtime/data/sources/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/error.h"

namespace dtrain {

std::string_view name_of(Split split) noexcept { return split == Split::train ? "train" : "test"; }

SubsetSource::SubsetSource(std::string name, std::shared_ptr<const Source> source,
                           std::vector<std::int64_t> indices)
    : name_(std::move(name)), source_(std::move(source)), indices_(std::move(indices)) {
  if (source_ == nullptr) throw UsageError(fmt::format("{}: expected a source, got null", name_));
  const auto bad = std::find_if(indices_.begin(), indices_.end(),
                                [this](std::int64_t i) { return i < 0 || i >= source_->size(); });
  if (bad == indices_.end()) return;
  throw UsageError(fmt::format("{}: expected indices from 0 to {}, got {} at place {}", name_,
                               source_->size() - 1, *bad, bad - indices_.begin()));
}

SplitIndices split_indices(std::int64_t size, double share, std::uint64_t seed) {
  const auto kept = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * share));
  if (!(share > 0 && share < 1) || kept < 1 || kept >= size) {
    throw UsageError(fmt::format(
        "split: expected a share that leaves samples on both sides, got {} of {} samples", share, size));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  KeyedGenerator generator(seed, 0, 0);
  // Fisher and Yates, as far as training needs it: what is behind is held out, in whatever order.
  for (std::int64_t i = 0; i < kept; ++i) {
    const auto other = i + static_cast<std::int64_t>(generator.below(static_cast<std::uint64_t>(size - i)));
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(other)]);
  }
  const auto middle = order.begin() + kept;
  std::sort(order.begin(), middle);
  std::sort(middle, order.end());
  return {{order.begin(), middle}, {middle, order.end()}};
}

Splits split_source(const std::shared_ptr<const Source>& source, double share, std::uint64_t seed) {
  SplitIndices indices = split_indices(source->size(), share, seed);
  const auto part = [&](Split split, std::vector<std::int64_t> which) {
    return std::make_shared<SubsetSource>(fmt::format("{} of {}", name_of(split), source->name()), source,
                                          std::move(which));
  };
  return {part(Split::train, std::move(indices.train)), part(Split::test, std::move(indices.test))};
}

}  // namespace dtrain
