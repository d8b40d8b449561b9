// pad of ops/indexing.h with elements of the tensor itself, which are picked, dimension by dimension.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

const char* text_of(PadMode mode) {
  switch (mode) {
    case PadMode::reflect:
      return "reflect";
    case PadMode::replicate:
      return "replicate";
    default:
      return "circular";
  }
}

/// Which of `extent` elements stands at `place`, which may be before the first or behind the last.
std::int64_t source_of(std::int64_t place, std::int64_t extent, PadMode mode) {
  if (mode == PadMode::replicate) return std::clamp<std::int64_t>(place, 0, extent - 1);
  if (mode == PadMode::circular) return ((place % extent) + extent) % extent;
  const std::int64_t folded = std::abs(place);
  return folded < extent ? folded : 2 * (extent - 1) - folded;
}

Tensor padded_along(const Tensor& x, int dim, std::int64_t before, std::int64_t after, PadMode mode) {
  const std::int64_t extent = x.size(dim);
  const bool repeats = mode == PadMode::replicate;
  const std::int64_t most = mode == PadMode::reflect ? extent - 1 : extent;
  const bool fits =
      extent >= 1 && extent + before + after >= 1 && (repeats || (before <= most && after <= most));
  if (!fits) {
    throw UsageError(std::string("pad ") + text_of(mode) + ": expected " +
                     (repeats ? "" : "at most " + std::to_string(most) + " before and behind, and ") +
                     "at least one element to take and one left in dimension " + std::to_string(dim) +
                     " of " + x.describe() + ", got " + std::to_string(before) + " before and " +
                     std::to_string(after) + " behind");
  }
  std::vector<std::int64_t> places;
  for (std::int64_t i = -before; i < extent + after; ++i) places.push_back(source_of(i, extent, mode));
  return x.index_select(
      dim, Tensor::from_data(places, {static_cast<std::int64_t>(places.size())}, x.shared_device()));
}

}  // namespace

Tensor pad(const Tensor& x, const Dims& amounts, PadMode mode) {
  if (mode == PadMode::constant) return pad(x, amounts);
  if (amounts.rank() % 2 != 0 || amounts.rank() > 2 * x.rank()) {
    throw UsageError("pad: expected a number before and one after for at most " + std::to_string(x.rank()) +
                     " dimensions, got " + amounts.to_string() + " for " + x.describe());
  }
  Tensor result = x;
  for (int i = 0; i < amounts.rank(); i += 2) {
    if (amounts[i] == 0 && amounts[i + 1] == 0) continue;
    result = padded_along(result, x.rank() - 1 - i / 2, amounts[i], amounts[i + 1], mode);
  }
  return result;
}

}  // namespace dtrain
