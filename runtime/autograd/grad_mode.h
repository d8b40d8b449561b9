// Whether operations of this thread are recorded for backward. Recording is on until a NoGrad is alive.
#pragma once

namespace dtrain {

/// True when this thread records operations.
bool grad_enabled() noexcept;

/// Sets this thread's recording for as long as the guard lives. Guards nest and must end in the thread and in
/// reverse of the order in which they began.
class GradMode {
 public:
  explicit GradMode(bool enabled) noexcept;
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};

/// Nothing is recorded while it lives: evaluation, parameter updates.
class NoGrad : public GradMode {
 public:
  NoGrad() noexcept : GradMode(false) {}
};

}  // namespace dtrain
