// Checks of arguments: element-wise kernels, reductions, indexing, and kernels that work along one dimension.
#include "runtime/device/checked_kernels.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::checks {
namespace {

/// `rows` are rows of `table`, one for each of `index` (i64).
void require_rows(std::string_view operation, const View& table, const View& index, const View& rows) {
  if (table.rank() == 0) refuse(operation, "expected a table of at least one dimension, got a scalar");
  require_rank(operation, "index", index, 1);
  require_dtype(operation, "index", index, DType::i64);
  Dims expected = table.shape;
  expected[0] = index.shape[0];
  require_shape(operation, "rows", rows, expected);
  require_dtype(operation, "rows", rows, table.dtype);
}

/// `dim` is a dimension of `view`.
void require_dim(std::string_view operation, int dim, const View& view) {
  if (dim >= 0 && dim < view.rank()) return;
  refuse(operation, "argument dim expected a dimension of shape " + view.shape.to_string() + ", got " +
                        std::to_string(dim));
}

/// The arguments of gather and scatter_add: `index` (i64) and `lines` have one shape and pick from `table`
/// along `dim`; elsewhere they are no larger than it.
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

}  // namespace

void fill(const View& /*out*/, double /*value*/) {}

void copy(const View& in, const View& out) { require_shape("copy", "out", out, in.shape); }

void affine(const View& in, double /*scale*/, double /*shift*/, const View& out) {
  require_shape("affine", "out", out, in.shape);
}

void unary(UnaryOp /*op*/, const View& in, const View& out) { require_like("unary", "out", out, in); }

void parametric(ParametricOp /*op*/, const View& in, double /*a*/, double /*b*/, const View& out) {
  require_like("parametric", "out", out, in);
}

void binary(BinaryOp /*op*/, const View& a, const View& b, const View& out) {
  require_like("binary", "a", a, out);
  require_like("binary", "b", b, out);
}

void where(const View& condition, const View& a, const View& b, const View& out) {
  require_shape("where", "condition", condition, out.shape);
  require_like("where", "a", a, out);
  require_like("where", "b", b, out);
}

void accumulate(const View& in, double /*scale*/, const View& out) {
  require_like("accumulate", "in", in, out);
}

void dropout_mask(const MaskNumbers& numbers, double keep, const View& out) {
  require_dtype("dropout_mask", "step", numbers.step, DType::i64);
  require_shape("dropout_mask", "step", numbers.step, {1});
  if (!(keep > 0 && keep <= 1)) {
    refuse("dropout_mask", "keep expected above 0 and at most 1, got " + std::to_string(keep));
  }
  if (numbers.first < 0)
    refuse("dropout_mask", "first expected 0 or more, got " + std::to_string(numbers.first));
  if (!out.is_contiguous())
    refuse("dropout_mask", "out expected dense, got strides " + out.strides.to_string());
  if (numbers.rows.data == nullptr) return;
  require_dtype("dropout_mask", "rows", numbers.rows, DType::i64);
  const std::int64_t extent = out.rank() == 0 ? 1 : out.shape[0], rows = numbers.rows.numel();
  if (numbers.rows.rank() == 1 && numbers.rows.is_contiguous() && rows > 0 && extent % rows == 0) return;
  refuse("dropout_mask", "rows expected dense [N], N a divisor of " + std::to_string(extent) +
                             ", got shape " + numbers.rows.shape.to_string());
}

void reduce(Reduction op, const View& in, const View& out) {
  require_rank("reduce", "out", out, in.rank());
  require_dtype("reduce", "out", out, in.dtype);
  for (int i = 0; i < in.rank(); ++i) {
    if (out.shape[i] == 1 || out.shape[i] == in.shape[i]) continue;
    refuse("reduce", "out expected extents of 1 or those of " + in.shape.to_string() + ", got " +
                         out.shape.to_string());
  }
  if (op == Reduction::mean && in.dtype == DType::i64) refuse_dtype("reduce mean", in.dtype);
  if (op == Reduction::sum || op == Reduction::mean || in.numel() != 0 || out.numel() == 0) return;
  refuse("reduce", "max and min of no elements, in " + in.shape.to_string());
}

void argmax(const View& in, const View& out) {
  if (in.rank() == 0 || in.shape.back() == 0) {
    refuse("argmax",
           "expected at least one element along the last dimension, got shape " + in.shape.to_string());
  }
  require_shape("argmax", "out", out, without_dim(in.shape, in.rank() - 1));
  require_dtype("argmax", "out", out, DType::i64);
}

void index_select(const View& in, const View& index, const View& out) {
  require_rows("index_select", in, index, out);
}

void index_add(const View& in, const View& index, const View& out) {
  require_rows("index_add", out, index, in);
}

void gather(const View& in, int dim, const View& index, const View& out) {
  require_picks("gather", in, dim, index, out);
}

void scatter_add(const View& in, int dim, const View& index, const View& out) {
  require_picks("scatter_add", out, dim, index, in);
}

void cumsum(const View& in, int dim, bool /*reverse*/, const View& out) {
  require_dim("cumsum", dim, in);
  require_like("cumsum", "out", out, in);
}

void sort(const View& in, int dim, bool /*descending*/, const View& values, const View& indices) {
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

}  // namespace dtrain::checks
