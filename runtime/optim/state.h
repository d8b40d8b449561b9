// Reading an optimizer's saved state back, with one clear message for whatever does not fit.
#pragma once

#include <string_view>
#include <unordered_map>

#include "runtime/optim/optimizer.h"

namespace dtrain {

/// The tensors of a saved optimizer state, taken out one by one.
class SavedState {
 public:
  /// Throws UsageError when a name is given twice.
  explicit SavedState(const Optimizer::NamedTensors& state);

  /// A copy of "<parameter>.<quantity>" with `like`'s shape, dtype and device; undefined when it is not
  /// there. Throws UsageError for another shape.
  Tensor take(std::string_view parameter, std::string_view quantity, const Tensor& like);
  /// Throws UsageError naming what was not taken.
  void check_all_taken() const;

 private:
  std::unordered_map<std::string, Tensor> left_;
};

/// Throws UsageError: "<parameter>" has some of its state but not "<quantity>".
[[noreturn]] void throw_incomplete_state(std::string_view parameter, std::string_view quantities);

}  // namespace dtrain
