// Where time goes, as named spans: what `dtrain bench step` adds up and what a trace draws. Code that can be
// timed borrows a SpanRecorder pointer; null, the default, records nothing and costs one comparison.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain {

/// One thing that took time.
struct TimedSpan {
  std::string name;           ///< "conv2d", "forward", "all_reduce bucket 3"
  std::string_view category;  ///< "kernel", "phase", "collective"
  TimePoint start, end;
  std::int64_t thread = 0;  ///< the kernel's id of the thread it ran on
  double flops = 0;         ///< floating-point operations, a multiply and an add as two; 0: not defined

  Duration duration() const noexcept { return end - start; }
};

/// Hears scopes open and close, by the thread they are on: how a profiler shows the same spans.
class SpanListener {
 public:
  virtual ~SpanListener() = default;
  virtual void begin(std::string_view name) noexcept = 0;
  /// Ends what this thread began last.
  virtual void end() noexcept = 0;
};

/// Collects spans in memory. Thread-safe. Past `limit` spans it only counts.
class SpanRecorder {
 public:
  static constexpr std::size_t kDefaultLimit = std::size_t{1} << 20;

  /// `clock` is borrowed.
  explicit SpanRecorder(std::size_t limit = kDefaultLimit, const Clock& clock = steady_clock())
      : limit_(limit), clock_(&clock) {}

  /// Whether spans are kept (they are at first). A scope that is open when this changes is kept if it ends
  /// while they are.
  void set_recording(bool recording) noexcept { recording_.store(recording, std::memory_order_relaxed); }
  bool recording() const noexcept { return recording_.load(std::memory_order_relaxed); }
  /// Is told of every scope, recording or not; borrowed, null: none. To be set before there is a scope.
  void set_listener(SpanListener* listener) noexcept { listener_ = listener; }
  SpanListener* listener() const noexcept { return listener_; }

  /// Time as the spans have it.
  TimePoint now() const noexcept { return clock_->now(); }
  /// A span of the calling thread. `name` is copied; `category` must live forever (a literal). Never throws:
  /// without memory the span is dropped.
  void add(std::string_view name, std::string_view category, TimePoint start, TimePoint end,
           double flops = 0) noexcept;
  /// Everything recorded since the last call, in the order in which it ended.
  std::vector<TimedSpan> take();
  /// Spans lost because there were too many.
  std::uint64_t dropped() const;
  /// The system's name of each thread that has recorded a span, as it was at its first one.
  std::map<std::int64_t, std::string> threads() const;

 private:
  const std::size_t limit_;
  const Clock* clock_;
  std::atomic<bool> recording_ = true;
  SpanListener* listener_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<TimedSpan> spans_;
  std::map<std::int64_t, std::string> threads_;
  std::uint64_t dropped_ = 0;
};

/// Records the time between its construction and its end; does nothing without a recorder. `name` must
/// outlive it.
class SpanScope {
 public:
  SpanScope(SpanRecorder* recorder, std::string_view name, std::string_view category,
            double flops = 0) noexcept
      : recorder_(recorder), name_(name), category_(category), flops_(flops) {
    if (recorder_ == nullptr) return;
    if (recorder_->listener() != nullptr) recorder_->listener()->begin(name_);
    start_ = recorder_->now();
  }
  ~SpanScope() {
    if (recorder_ == nullptr) return;
    recorder_->add(name_, category_, start_, recorder_->now(), flops_);
    if (recorder_->listener() != nullptr) recorder_->listener()->end();
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  SpanRecorder* recorder_;
  std::string_view name_, category_;
  double flops_;
  TimePoint start_{};
};

}  // namespace dtrain
