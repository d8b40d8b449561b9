// Which of a device's places of work a thread uses, so that two threads can compute on one device: what
// kernels keep between calls (compiled primitives, scratch memory) is kept once for each lane.
#pragma once

namespace dtrain {

/// 0 for a thread that holds no LaneScope.
int thread_lane() noexcept;

/// Gives this thread the lowest lane from 1 on that no other thread has, for as long as it lives: threads
/// that come and go find what their predecessors compiled.
class LaneScope {
 public:
  LaneScope();
  ~LaneScope();
  LaneScope(const LaneScope&) = delete;
  LaneScope& operator=(const LaneScope&) = delete;

 private:
  int before_, lane_;
};

}  // namespace dtrain
