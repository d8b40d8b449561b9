// Time and a network that exist only in a test: everything that happens is an event in one queue, drawn from
// a seed, so that a run of minutes takes milliseconds and can be repeated.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::simulation {

/// Virtual time, and what is to happen at which. Events of one moment happen in the order they were added.
class Timeline final : public Clock {
 public:
  TimePoint now() const noexcept override { return now_; }

  void at(TimePoint when, std::function<void()> event) {
    events_.push({std::max(when, now_), next_++, std::move(event)});
  }
  void after(Duration wait, std::function<void()> event) { at(now_ + wait, std::move(event)); }
  /// Until `end`, or until `stop` says so after an event.
  void run_until(TimePoint end, const std::function<bool()>& stop) {
    while (!events_.empty() && events_.top().at <= end) {
      now_ = events_.top().at;
      const std::function<void()> event = std::move(events_.top().happens);
      events_.pop();
      event();
      if (stop()) return;
    }
    now_ = std::max(now_, end);
  }

 private:
  struct Event {
    TimePoint at{};
    std::uint64_t number = 0;
    mutable std::function<void()> happens;
    bool operator<(const Event& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  TimePoint now_{std::chrono::seconds(1000)};
  std::uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

/// How long messages take between machines, which are numbers, and which of them cannot hear each other now.
class Network {
 public:
  Network(Timeline& time, std::mt19937& random, Duration slowest)
      : time_(time), random_(random), slowest_(slowest) {}

  /// Nothing arrives from `from` at `to` before `until`: what is sent meanwhile arrives later, as TCP sends
  /// it again.
  void cut(int from, int to, TimePoint until) {
    TimePoint& ends = cuts_[{from, to}];
    ends = std::max(ends, until);
  }
  Duration delay() {
    return Duration(std::uniform_int_distribution<std::int64_t>(10'000, slowest_.count())(random_));
  }
  /// When a message that is sent now arrives.
  TimePoint arrival(int from, int to) {
    const auto cut = cuts_.find({from, to});
    const TimePoint leaves = cut == cuts_.end() ? time_.now() : std::max(time_.now(), cut->second);
    return leaves + delay();
  }

 private:
  Timeline& time_;
  std::mt19937& random_;
  Duration slowest_;
  std::map<std::pair<int, int>, TimePoint> cuts_;
};

}  // namespace dtrain::simulation
