#include "runtime/base/spans.h"

#include <unistd.h>

#include <new>
#include <utility>

namespace dtrain {

void SpanRecorder::add(std::string_view name, std::string_view category, TimePoint start, TimePoint end,
                       double flops) noexcept {
  const std::int64_t thread = ::gettid();
  const std::lock_guard lock(mutex_);
  if (spans_.size() >= limit_) {
    ++dropped_;
    return;
  }
  try {
    spans_.push_back({std::string(name), category, start, end, thread, flops});
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

std::vector<TimedSpan> SpanRecorder::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

std::uint64_t SpanRecorder::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace dtrain
