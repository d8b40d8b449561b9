// A clock that moves only when a test says so.
#pragma once

#include "runtime/base/clock.h"

namespace dtrain::test {

class ManualClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace dtrain::test
