#include "runtime/device/line_checks.h"

namespace dtrain {

void require_dim(std::string_view operation, int dim, const View& view) {
  if (dim >= 0 && dim < view.rank()) return;
  refuse(operation, "argument dim expected a dimension of shape " + view.shape.to_string() + ", got " +
                        std::to_string(dim));
}

void require_picks(std::string_view operation, const View& table, int dim, const View& index,
                   const View& lines) {
  require_dim(operation, dim, table);
  require_dtype(operation, "index", index, DType::i64);
  require_rank(operation, "index", index, table.rank());
  require_shape(operation, "the other side", lines, index.shape);
  require_dtype(operation, "the other side", lines, table.dtype);
  for (int i = 0; i < table.rank(); ++i) {
    if (i == dim || index.shape[i] <= table.shape[i]) continue;
    refuse(operation, "index expected extents of at most " + table.shape.to_string() + " but in dimension " +
                          std::to_string(dim) + ", got " + index.shape.to_string());
  }
}

void require_sorted(const View& in, int dim, const View& values, const View& indices) {
  require_dim("sort", dim, in);
  require_rank("sort", "values", values, in.rank());
  require_dtype("sort", "values", values, in.dtype);
  require_shape("sort", "indices", indices, values.shape);
  require_dtype("sort", "indices", indices, DType::i64);
  const std::int64_t wanted = values.shape[dim];
  Dims expected = in.shape;
  expected[dim] = wanted;
  require_shape("sort", "values", values, expected);
  if (wanted > in.shape[dim]) {
    refuse("sort", "values expected at most " + std::to_string(in.shape[dim]) + " elements in dimension " +
                       std::to_string(dim) + ", got " + std::to_string(wanted));
  }
}

}  // namespace dtrain
