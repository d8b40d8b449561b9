#include "runtime/data/sources/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace dtrain {

std::string_view name_of(Split split) noexcept { return split == Split::train ? "train" : "test"; }

SubsetSource::SubsetSource(std::string name, std::shared_ptr<const Source> source,
                           std::vector<std::int64_t> indices)
    : name_(std::move(name)),
      source_(std::move(source)),
      indices_(std::make_shared<const std::vector<std::int64_t>>(std::move(indices))) {
  if (source_ == nullptr) throw UsageError(fmt::format("{}: expected a source, got null", name_));
  const auto bad = std::find_if(indices_->begin(), indices_->end(),
                                [this](std::int64_t i) { return i < 0 || i >= source_->size(); });
  if (bad == indices_->end()) return;
  throw UsageError(fmt::format("{}: expected indices from 0 to {}, got {} at place {}", name_,
                               source_->size() - 1, *bad, bad - indices_->begin()));
}

std::shared_ptr<const Source> SubsetSource::at_epoch(std::int64_t epoch) const {
  auto seen = source_->at_epoch(epoch);
  if (seen == nullptr) return nullptr;
  auto subset = std::make_shared<SubsetSource>(*this);
  subset->source_ = std::move(seen);
  return subset;
}

namespace {

/// The samples of the smaller side: one of each run of 1 / `rare` samples.
std::vector<bool> pick(std::int64_t size, double rare, std::uint64_t seed) {
  const auto begin_of = [rare](std::int64_t run) { return std::llround(static_cast<double>(run) / rare); };
  std::vector<bool> picked(static_cast<std::size_t>(size));
  for (std::int64_t run = 0; begin_of(run) < size; ++run) {
    const std::int64_t begin = begin_of(run);
    // A run that is not complete yet is drawn from as if it were: more samples must not move these.
    const std::int64_t end = run == 0 ? std::min<std::int64_t>(begin_of(1), size) : begin_of(run + 1);
    KeyedGenerator generator(seed, 0, static_cast<std::uint64_t>(run));
    const auto at =
        begin + static_cast<std::int64_t>(generator.below(static_cast<std::uint64_t>(end - begin)));
    if (at < size) picked[static_cast<std::size_t>(at)] = true;
  }
  return picked;
}

}  // namespace

SplitIndices split_indices(std::int64_t size, double share, std::uint64_t seed) {
  const auto kept = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * share));
  if (!(share > 0 && share < 1) || kept < 1 || kept >= size) {
    throw UsageError(fmt::format(
        "split: expected a share that leaves samples on both sides, got {} of {} samples", share, size));
  }
  const bool train_is_rare = share < 0.5;
  const std::vector<bool> picked = pick(size, train_is_rare ? share : 1 - share, seed);
  SplitIndices split;
  for (std::int64_t i = 0; i < size; ++i)
    (picked[static_cast<std::size_t>(i)] == train_is_rare ? split.train : split.test).push_back(i);
  return split;
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
