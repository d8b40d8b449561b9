#include "runtime/tensor/shape.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// A stretch of a view whose elements are evenly spaced.
struct Run {
  std::int64_t extent, stride;
};

/// The fewest runs that cover `view`, innermost first; extents of 1 vanish.
struct Runs {
  explicit Runs(const View& view) {
    for (int i = view.rank() - 1; i >= 0; --i) {
      const std::int64_t extent = view.shape[i], stride = view.strides[i];
      if (extent == 1) continue;
      if (count > 0 && items[count - 1].stride * items[count - 1].extent == stride) {
        items[count - 1].extent *= extent;
      } else {
        items[count++] = {extent, stride};
      }
    }
  }
  Run items[kMaxRank];
  int count = 0;
};

}  // namespace

int normalize_dim(std::int64_t dim, int rank, std::string_view what) {
  const std::int64_t result = dim < 0 ? dim + rank : dim;
  if (result < 0 || result >= rank) {
    throw UsageError(std::string(what) + ": dimension " + std::to_string(dim) + " is outside a tensor of " +
                     std::to_string(rank) + " dimensions");
  }
  return static_cast<int>(result);
}

Dims broadcast_shapes(const Dims& a, const Dims& b, std::string_view what) {
  Dims result = Dims::filled(std::max(a.rank(), b.rank()), 1);
  for (int i = 1; i <= result.rank(); ++i) {
    const std::int64_t from_a = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t from_b = i <= b.rank() ? b[b.rank() - i] : 1;
    if (from_a != from_b && from_a != 1 && from_b != 1) {
      throw UsageError(std::string(what) + ": shapes " + a.to_string() + " and " + b.to_string() +
                       " do not broadcast: extents " + std::to_string(from_a) + " and " +
                       std::to_string(from_b) + " of dimension -" + std::to_string(i) +
                       " differ and neither is 1");
    }
    result[result.rank() - i] = from_a == 1 ? from_b : from_a;
  }
  return result;
}

Dims infer_shape(const Dims& shape, std::int64_t numel, std::string_view what) {
  Dims result = shape;
  int unknown = -1;
  std::int64_t known = 1;
  bool valid = true;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1 && unknown < 0) {
      unknown = i;
    } else {
      valid = valid && shape[i] >= 0 && !__builtin_mul_overflow(known, shape[i], &known);
    }
  }
  if (valid && unknown >= 0) {
    valid = known > 0 && numel % known == 0;
    if (valid) result[unknown] = numel / known;
  } else {
    valid = valid && known == numel;
  }
  if (!valid) {
    throw UsageError(std::string(what) + ": " + std::to_string(numel) + " elements do not fit shape " +
                     shape.to_string());
  }
  return result;
}

std::optional<Dims> strides_for_view(const View& view, const Dims& shape) {
  if (view.numel() == 0) return contiguous_strides(shape);
  const Runs runs(view);
  Dims strides = Dims::filled(shape.rank(), 1);
  int run = 0;
  std::int64_t left = runs.count > 0 ? runs.items[0].extent : 1;
  std::int64_t stride = runs.count > 0 ? runs.items[0].stride : 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (left == 1 && ++run < runs.count) {
      left = runs.items[run].extent;
      stride = runs.items[run].stride;
    }
    if (left % shape[i] != 0) return std::nullopt;  // the new dimension would span two runs
    strides[i] = stride;
    stride *= shape[i];
    left /= shape[i];
  }
  return strides;
}

std::optional<Dims> strides_for_expand(const View& view, const Dims& shape) {
  const int missing = shape.rank() - view.rank();
  if (missing < 0) return std::nullopt;
  Dims strides = Dims::filled(shape.rank(), 0);
  for (int i = 0; i < view.rank(); ++i) {
    if (view.shape[i] == shape[i + missing]) {
      strides[i + missing] = view.strides[i];
    } else if (view.shape[i] != 1) {
      return std::nullopt;
    }
  }
  return strides;
}

}  // namespace dtrain
