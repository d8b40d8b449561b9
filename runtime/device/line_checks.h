// The checks of kernels that work along one dimension, line by line: gather, scatter_add, cumsum and sort.
// Each throws UsageError as kernel_checks.h says.
#pragma once

#include "runtime/device/kernel_checks.h"

namespace dtrain {

/// `dim` is a dimension of `view`.
void require_dim(std::string_view operation, int dim, const View& view);

/// The arguments of gather and scatter_add: `index` (i64) and `lines` have one shape and pick from `table`
/// along `dim`; elsewhere they are no larger than it.
void require_picks(std::string_view operation, const View& table, int dim, const View& index,
                   const View& lines);

/// The arguments of sort: `values` and `indices` (i64) hold the first elements of `in` along `dim`.
void require_sorted(const View& in, int dim, const View& values, const View& indices);

/// `dims` with an extent of 1 in dimension `dim`: how many lines there are.
inline Dims without_dim(Dims dims, int dim) {
  dims[dim] = 1;
  return dims;
}

}  // namespace dtrain
