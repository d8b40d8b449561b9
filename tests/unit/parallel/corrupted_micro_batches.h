// Micro-batches of which one rank's gradients overflow.
#pragma once

#include <limits>

#include "parallel/strategy.h"

namespace dtrain::test {

/// Puts something that is no number among this rank's gradients, where it is `bad`.
class CorruptedMicroBatches final : public MicroBatches {
 public:
  CorruptedMicroBatches(MicroBatches& passes, Strategy& strategy, bool bad)
      : passes_(passes), strategy_(strategy), bad_(bad) {}
  std::size_t count() const noexcept override { return passes_.count(); }
  Tensors inputs(std::size_t i) override { return passes_.inputs(i); }
  Tensor loss(std::size_t i, const Tensors& outputs) override { return passes_.loss(i, outputs); }
  double weight(std::size_t i) const override { return passes_.weight(i); }
  void losses_done() override { passes_.losses_done(); }
  void gradients_done() override {
    passes_.gradients_done();
    if (!bad_) return;
    Tensor gradient = strategy_.optimizer()->gradients().front().detach();
    gradient.fill(std::numeric_limits<double>::infinity());
  }

 private:
  MicroBatches& passes_;
  Strategy& strategy_;
  bool bad_;
};

}  // namespace dtrain::test
