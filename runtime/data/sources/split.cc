#include "runtime/data/sources/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

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

/// On which side each of some samples is: true, held out.
using Sides = std::vector<bool>;

/// The samples of the smaller side: one of each run of 1 / `rare` samples. `stream` tells classes apart.
std::vector<bool> pick(std::int64_t size, double rare, std::uint64_t seed, std::uint64_t stream = 0) {
  const auto begin_of = [rare](std::int64_t run) { return std::llround(static_cast<double>(run) / rare); };
  std::vector<bool> picked(static_cast<std::size_t>(size));
  for (std::int64_t run = 0; begin_of(run) < size; ++run) {
    const std::int64_t begin = begin_of(run);
    // A run that is not complete yet is drawn from as if it were: more samples must not move these.
    const std::int64_t end = run == 0 ? std::min<std::int64_t>(begin_of(1), size) : begin_of(run + 1);
    KeyedGenerator generator(seed, stream, static_cast<std::uint64_t>(run));
    const auto at =
        begin + static_cast<std::int64_t>(generator.below(static_cast<std::uint64_t>(end - begin)));
    if (at < size) picked[static_cast<std::size_t>(at)] = true;
  }
  return picked;
}

Sides cut_by_share(std::int64_t size, const HoldOut& how, std::uint64_t stream) {
  const bool train_is_rare = how.share < 0.5;
  Sides held_out = pick(size, train_is_rare ? how.share : 1 - how.share, how.seed, stream);
  if (train_is_rare) held_out.flip();
  return held_out;
}

/// Each run of `folds` samples in an order of its own: the first is of fold 1, the next of fold 2, …
Sides cut_by_folds(std::int64_t size, const HoldOut& how, std::uint64_t stream) {
  Sides held_out(static_cast<std::size_t>(size));
  std::vector<std::int64_t> order(static_cast<std::size_t>(how.folds));
  for (std::int64_t begin = 0; begin < size; begin += how.folds) {
    KeyedGenerator generator(how.seed, stream, static_cast<std::uint64_t>(begin / how.folds));
    std::iota(order.begin(), order.end(), begin);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[generator.below(i)]);
    const std::int64_t at = order[static_cast<std::size_t>(how.fold - 1)];
    if (at < size) held_out[static_cast<std::size_t>(at)] = true;
  }
  return held_out;
}

Sides cut(std::int64_t size, const HoldOut& how, std::uint64_t stream) {
  return how.folds > 0 ? cut_by_folds(size, how, stream) : cut_by_share(size, how, stream);
}

Sides cut_by_classes(const HoldOut& how, std::span<const std::int64_t> labels) {
  std::map<std::int64_t, std::vector<std::size_t>> classes;
  for (std::size_t i = 0; i < labels.size(); ++i) classes[labels[i]].push_back(i);
  Sides held_out(labels.size());
  for (const auto& [label, places] : classes) {
    if (places.size() == 1) continue;
    const Sides own =
        cut(static_cast<std::int64_t>(places.size()), how, static_cast<std::uint64_t>(label) + 1);
    for (std::size_t i = 0; i < places.size(); ++i) held_out[places[i]] = own[i];
  }
  return held_out;
}

void check(std::int64_t size, const HoldOut& how, std::span<const std::int64_t> labels) {
  if (how.folds > 0 && (how.folds < 2 || how.fold < 1 || how.fold > how.folds)) {
    throw UsageError(
        fmt::format("split: expected fold 1 to N of N = 2 or more, got fold {} of {}", how.fold, how.folds));
  }
  const auto kept = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * how.share));
  if (how.folds == 0 && (!(how.share > 0 && how.share < 1) || kept < 1 || kept >= size)) {
    throw UsageError(fmt::format(
        "split: expected a share that leaves samples on both sides, got {} of {} samples", how.share, size));
  }
  if (how.stratify && static_cast<std::int64_t>(labels.size()) != size) {
    throw UsageError(fmt::format("split: expected the class of each of {} samples to stratify by, got {}",
                                 size,
                                 labels.empty() ? "samples without classes" : std::to_string(labels.size())));
  }
}

}  // namespace

SplitIndices split_indices(std::int64_t size, const HoldOut& how, std::span<const std::int64_t> labels) {
  check(size, how, labels);
  const Sides held_out = how.stratify ? cut_by_classes(how, labels) : cut(size, how, 0);
  SplitIndices split;
  for (std::int64_t i = 0; i < size; ++i)
    (held_out[static_cast<std::size_t>(i)] ? split.test : split.train).push_back(i);
  if (!split.train.empty() && !split.test.empty()) return split;
  throw UsageError(fmt::format("split: expected samples on both sides, got {} to train on and {} held out",
                               split.train.size(), split.test.size()));
}

SplitIndices split_indices(std::int64_t size, double share, std::uint64_t seed) {
  return split_indices(size, {.share = share, .seed = seed});
}

Splits split_source(const std::shared_ptr<const Source>& source, const HoldOut& how,
                    std::span<const std::int64_t> labels) {
  SplitIndices indices = split_indices(source->size(), how, labels);
  const auto part = [&](Split split, std::vector<std::int64_t> which) {
    return std::make_shared<SubsetSource>(fmt::format("{} of {}", name_of(split), source->name()), source,
                                          std::move(which));
  };
  return {part(Split::train, std::move(indices.train)), part(Split::test, std::move(indices.test))};
}

Splits split_source(const std::shared_ptr<const Source>& source, double share, std::uint64_t seed) {
  return split_source(source, {.share = share, .seed = seed});
}

}  // namespace dtrain
