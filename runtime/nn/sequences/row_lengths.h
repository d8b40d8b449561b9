// Sequences of different lengths for recurrent layers, as torch's PackedSequence: only the steps there are,
// one step's rows after the other's, the longest sequence first. Internal to recurrent.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain {

class RowLengths {
 public:
  /// `lengths`, int64 [N], of the rows of `sequence` [L, N, …], on whose device this works. Null where all
  /// are L: there is nothing to pack. Throws UsageError naming `layer` for another shape or dtype and for
  /// lengths outside 1 to L.
  static std::unique_ptr<RowLengths> of(std::string_view layer, const Tensor& lengths,
                                        const Tensor& sequence);

  /// How many rows have step 0, 1, …: never more than those before.
  const std::vector<std::int64_t>& rows_by_step() const noexcept { return rows_by_step_; }
  /// [L, N, F] → [sum of the lengths, F].
  Tensor packed(const Tensor& sequence) const;
  /// Back, with 0 where there was no step.
  Tensor padded(const Tensor& packed) const;
  /// [S, N, F] with the longest row first, and back.
  Tensor sorted(const Tensor& states) const;
  Tensor unsorted(const Tensor& states) const;

 private:
  RowLengths(const std::vector<std::int64_t>& lengths, const Tensor& sequence);

  std::int64_t steps_ = 0, rows_ = 0;  ///< L and N
  bool in_order_ = false;              ///< the rows came sorted
  std::vector<std::int64_t> rows_by_step_;
  Tensor places_;   ///< of each packed row in [L · N]
  Tensor sources_;  ///< of each of [L · N] among the packed rows; behind them: none
  Tensor order_, back_;
};

}  // namespace dtrain
