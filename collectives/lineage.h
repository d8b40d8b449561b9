// What an abort reaches: a group, and the groups that were split off from it. One that ended in the middle of
// a call would otherwise find its fellows in another group only when it is gone, without its reason.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace dtrain {

/// One group's. Thread-safe.
class Lineage {
 public:
  using End = std::function<void(std::string_view reason)>;

  /// `end` aborts the group itself; it does not throw.
  explicit Lineage(End end) : end_(std::move(end)) {}

  /// `part` was split off.
  void add(std::shared_ptr<Lineage> part) {
    const std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const auto& one) { return one->is_over(); });
    parts_.push_back(std::move(part));
  }
  /// Aborts the group, then its parts.
  void abort(std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (end_) end_(reason);
    for (const auto& part : parts_) part->abort(reason);
  }
  /// The group is no more; its parts live on. Returns when no abort of it is under way.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    end_ = nullptr;
  }

 private:
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return !end_ && std::ranges::all_of(parts_, [](const auto& part) { return part->is_over(); });
  }

  std::mutex mutex_;
  End end_;
  std::vector<std::shared_ptr<Lineage>> parts_;
};

}  // namespace dtrain
