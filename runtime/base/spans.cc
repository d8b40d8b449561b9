#include "runtime/base/spans.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <new>
#include <utility>

namespace dtrain {
namespace {

std::string name_of_this_thread() {
  std::array<char, 16> name{};  // the kernel keeps 15 characters and the end
  ::prctl(PR_GET_NAME, name.data());
  return name.data();
}

}  // namespace

void SpanRecorder::add(std::string_view name, std::string_view category, TimePoint start, TimePoint end,
                       double flops) noexcept {
  if (!recording()) return;
  const std::int64_t thread = ::gettid();
  const std::lock_guard lock(mutex_);
  if (spans_.size() >= limit_) {
    ++dropped_;
    return;
  }
  try {
    if (!threads_.contains(thread)) threads_.emplace(thread, name_of_this_thread());
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

std::map<std::int64_t, std::string> SpanRecorder::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_;
}

}  // namespace dtrain
