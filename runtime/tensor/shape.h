// Arithmetic on shapes: broadcasting, dimensions counted from the end, what can be viewed without a copy.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/device/view.h"

namespace dtrain {

/// `dim` counted from the front; negative ones count from the end. Throws UsageError naming `what` when it is
/// outside a tensor of `rank` dimensions.
int normalize_dim(std::int64_t dim, int rank, std::string_view what);

/// The common shape under NumPy's rule. Throws UsageError naming `what` and both shapes when there is none.
Dims broadcast_shapes(const Dims& a, const Dims& b, std::string_view what);

/// Replaces an extent of -1 by what `numel` leaves for it. Throws UsageError when the counts do not fit.
Dims infer_shape(const Dims& shape, std::int64_t numel, std::string_view what);

/// Strides that show `view` as `shape` (equal element count) without a copy; nothing when impossible.
std::optional<Dims> strides_for_view(const View& view, const Dims& shape);

/// Strides that broadcast `view` to `shape`; nothing when the shapes do not allow it.
std::optional<Dims> strides_for_expand(const View& view, const Dims& shape);

}  // namespace dtrain
