// Abort propagation: an abort reaches a group and the groups that were split off from it. One that ended in
// the middle of a call would otherwise find its fellows in another group only when it is gone, without its
// reason.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace dtrain {

/// One group's. Thread-safe.
class AbortTree {
 public:
  using End = std::function<void(std::string_view reason)>;

  /// `end` aborts the group itself; it does not throw.
  explicit AbortTree(End end) : end_(std::move(end)) {}

  /// `child` was split off.
  void add(std::shared_ptr<AbortTree> child) {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& one) { return one->is_over(); });
    children_.push_back(std::move(child));
  }
  /// Aborts the group, then its children.
  void abort(std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (end_) end_(reason);
    for (const auto& child : children_) child->abort(reason);
  }
  /// The group is no more; its children live on. Returns when no abort of it is under way.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    end_ = nullptr;
  }

 private:
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return !end_ && std::ranges::all_of(children_, [](const auto& child) { return child->is_over(); });
  }

  std::mutex mutex_;
  End end_;
  std::vector<std::shared_ptr<AbortTree>> children_;
};

}  // namespace dtrain
