// Which elements of a tensor a rank holds, in the one form that every way of cutting tensors comes down to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/device/dims.h"

namespace dtrain {

/// A box of a tensor, and of that box's elements in row-major order a range. A value type.
///
///     TensorShard::whole({512, 784});                          // one rank has all of it: DDP, a pipeline's
///     stage TensorShard::elements({512, 784}, 0, 100'000);           // a range of the flattened tensor:
///     ZeRO TensorShard::slice({512, 784}, 0, 256, 512);             // rows 256 to 511: tensor parallelism
///     TensorShard::slice({512, 784}, 0, 256, 512).range(0, 9)  // ZeRO inside tensor parallelism
struct TensorShard {
  Dims shape;              ///< of the whole tensor
  Dims begin, extent;      ///< the box: of dimension d the indices [begin[d], begin[d] + extent[d])
  std::int64_t first = 0;  ///< of the box's elements, row-major, those in [first, first + count)
  std::int64_t count = 0;

  /// All of a tensor of `shape`.
  static TensorShard whole(const Dims& shape);
  /// `count` elements from `first` on of the flattened tensor. Throws UsageError when they are not inside.
  static TensorShard elements(const Dims& shape, std::int64_t first, std::int64_t count);
  /// Indices [begin, end) of dimension `dim`, all of the others. Throws UsageError when they are not inside.
  static TensorShard slice(const Dims& shape, int dim, std::int64_t begin, std::int64_t end);

  /// This box cut once more along `dim`; begin and end count from the start of the tensor. Throws UsageError
  /// when they are not inside the box, or the part is not a whole box.
  TensorShard sliced(int dim, std::int64_t slice_begin, std::int64_t slice_end) const;
  /// Of this part's elements, `range_count` from `range_first` on. Throws UsageError when they are not
  /// inside.
  TensorShard range(std::int64_t range_first, std::int64_t range_count) const;

  /// Every element of the box.
  bool is_box() const noexcept { return first == 0 && count == extent.product(); }
  /// Every element of the tensor.
  bool is_whole() const noexcept { return extent == shape && is_box(); }
  /// Shape of the memory that holds the part: the box's, or [count] where it is a range of the box.
  Dims held_shape() const;
  /// Throws UsageError, beginning with `where`, unless box and range are inside and the arithmetic fits 63
  /// bits.
  void check(const std::string& where) const;
  /// "[256:512, 0:784]", "[256:512, 0:784] elements 0:100": for names and messages.
  std::string to_string() const;

  bool operator==(const TensorShard&) const = default;
};

/// A stretch of elements that lie side by side in both of two parts of one tensor; offsets count elements
/// from the start of each part's memory.
struct SharedRun {
  std::int64_t in_a = 0, in_b = 0, count = 0;
};

/// Calls `visit` for the elements that `a` and `b` both hold, in rising order of both offsets. Both must be
/// parts of one shape. Cost: the number of contiguous runs of both. Ends early when `visit` returns false.
void for_each_shared_run(const TensorShard& a, const TensorShard& b,
                         const std::function<bool(const SharedRun&)>& visit);

/// True when some element is in both.
bool overlap(const TensorShard& a, const TensorShard& b);

}  // namespace dtrain
