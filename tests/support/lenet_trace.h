// How near a LeNet in fp32 comes to PyTorch's recorded losses (tests/parity/golden.safetensors, trace_lenet).
#pragma once

#include <cstddef>

namespace dtrain::test {

/// The bound on the loss of step `step` (from 0) at learning rate `lr`. Honest fp32 implementations of the
/// gentle traces stay within 2e-6 of each other for 15 steps. In those at lr 0.2 one rounding around step 10
/// decides between curves, which PyTorch's own ways to compute them take too, up to 2.8e-5 from what it
/// recorded: see docs/decisions/008 and tests/parity/training/pytorch_drift.py before loosening these bounds.
constexpr double lenet_loss_bound(std::size_t step, double lr) {
  if (step < 9) return 2e-6;
  if (step < 15) return lr == 0.2 ? 3e-5 : 1e-5;
  return 1e-4;
}

}  // namespace dtrain::test
