// A part is a sequence of runs: stretches of elements that lie side by side in the flattened tensor. Two
// parts are compared by walking both sequences at once.
#include "runtime/checkpoint/tensor_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

// The runs of a part, in rising order.
class Runs {
 public:
  explicit Runs(const TensorShard& part) : part_(part), at_(part.first), end_(part.first + part.count) {
    // Dimensions behind the last one that is cut are part of one run.
    for (int d = part.shape.rank() - 1; d >= 0; --d) {
      length_ *= part.extent[d];
      outer_ = d;
      if (part.extent[d] != part.shape[d]) break;
    }
    settle();
  }

  bool done() const noexcept { return at_ >= end_; }
  std::int64_t global() const noexcept { return global_; }           ///< offset in the flattened tensor
  std::int64_t local() const noexcept { return at_ - part_.first; }  ///< offset in the part's memory
  std::int64_t left() const noexcept { return left_; }  ///< elements from here to the end of the run

  void advance(std::int64_t count) {
    at_ += count;
    if (count < left_) {
      global_ += count;
      left_ -= count;
    } else {
      settle();
    }
  }

 private:
  // From the position in the box to the one in the tensor.
  void settle() {
    if (done()) return;
    std::int64_t row = at_ / length_;
    const std::int64_t inside = at_ % length_;
    std::int64_t stride = 1;
    global_ = inside;
    for (int d = part_.shape.rank() - 1; d >= 0; --d) {
      std::int64_t index = part_.begin[d];
      if (d < outer_) {
        index += row % part_.extent[d];
        row /= part_.extent[d];
      }
      global_ += index * stride;
      stride *= part_.shape[d];
    }
    left_ = std::min(length_ - inside, end_ - at_);
  }

  const TensorShard& part_;
  std::int64_t length_ = 1;
  int outer_ = 0;  // dimensions before this one are walked
  std::int64_t at_, end_;
  std::int64_t global_ = 0, left_ = 0;
};

bool boxes_apart(const TensorShard& a, const TensorShard& b) {
  for (int d = 0; d < a.shape.rank(); ++d) {
    if (a.begin[d] + a.extent[d] <= b.begin[d] || b.begin[d] + b.extent[d] <= a.begin[d]) return true;
  }
  return false;
}

}  // namespace

TensorShard TensorShard::whole(const Dims& shape) {
  return {shape, Dims::filled(shape.rank(), 0), shape, 0, shape.product()};
}

TensorShard TensorShard::elements(const Dims& shape, std::int64_t first, std::int64_t count) {
  return whole(shape).range(first, count);
}

TensorShard TensorShard::slice(const Dims& shape, int dim, std::int64_t begin, std::int64_t end) {
  return whole(shape).sliced(dim, begin, end);
}

TensorShard TensorShard::sliced(int dim, std::int64_t slice_begin, std::int64_t slice_end) const {
  if (dim < 0 || dim >= shape.rank() || !is_box() || slice_begin < begin[dim] || slice_end < slice_begin ||
      slice_end > begin[dim] + extent[dim]) {
    throw UsageError(fmt::format("slice {}:{} of dimension {}: expected it inside the box {} of a tensor {}",
                                 slice_begin, slice_end, dim, to_string(), shape.to_string()));
  }
  TensorShard part = *this;
  part.begin[dim] = slice_begin;
  part.extent[dim] = slice_end - slice_begin;
  part.count = part.extent.product();
  return part;
}

TensorShard TensorShard::range(std::int64_t range_first, std::int64_t range_count) const {
  if (range_first < 0 || range_count < 0 || range_first > count || range_count > count - range_first) {
    throw UsageError(fmt::format("{} elements from {} on: expected them inside the {} of {} of a tensor {}",
                                 range_count, range_first, count, to_string(), shape.to_string()));
  }
  TensorShard part = *this;
  part.first += range_first;
  part.count = range_count;
  return part;
}

Dims TensorShard::held_shape() const { return is_box() ? extent : Dims{count}; }

void TensorShard::check(const std::string& where) const {
  const auto fail = [&] {
    throw UsageError(fmt::format("{}: expected a part inside the tensor {}, got {} elements from {} on of {}",
                                 where, shape.to_string(), count, first, to_string()));
  };
  if (begin.rank() != shape.rank() || extent.rank() != shape.rank()) fail();
  std::int64_t all = 1, inside = 1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (begin[d] < 0 || extent[d] < 0 || begin[d] > shape[d] || extent[d] > shape[d] - begin[d]) fail();
    if (__builtin_mul_overflow(all, shape[d], &all) || __builtin_mul_overflow(inside, extent[d], &inside))
      fail();
  }
  if (first < 0 || count < 0 || first > inside || count > inside - first) fail();
}

std::string TensorShard::to_string() const {
  std::string text = "[";
  for (int d = 0; d < begin.rank() && d < extent.rank(); ++d) {
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", begin[d], begin[d] + extent[d]);
  }
  text += "]";
  return is_box() ? text : fmt::format("{} elements {}:{}", text, first, first + count);
}

void for_each_shared_run(const TensorShard& a, const TensorShard& b,
                         const std::function<bool(const SharedRun&)>& visit) {
  Runs left(a), right(b);
  while (!left.done() && !right.done()) {
    const std::int64_t ahead = right.global() - left.global();
    if (ahead > 0) {
      left.advance(std::min(ahead, left.left()));
    } else if (ahead < 0) {
      right.advance(std::min(-ahead, right.left()));
    } else {
      const std::int64_t count = std::min(left.left(), right.left());
      if (!visit({left.local(), right.local(), count})) return;
      left.advance(count);
      right.advance(count);
    }
  }
}

bool overlap(const TensorShard& a, const TensorShard& b) {
  if (a.begin == b.begin && a.extent == b.extent) {
    return std::max(a.first, b.first) < std::min(a.first + a.count, b.first + b.count);
  }
  if (a.count == 0 || b.count == 0 || boxes_apart(a, b)) return false;
  bool found = false;
  for_each_shared_run(a, b, [&](const SharedRun&) {
    found = true;
    return false;
  });
  return found;
}

}  // namespace dtrain
