// cat, stack, split, chunk and unbind.
#include "runtime/autograd/ops/joining.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

/// The result's shape, after the checks.
Dims joined_shape(std::span<const Tensor> tensors, int dim) {
  Dims shape = tensors[0].shape();
  shape[dim] = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_same_kind("cat", tensors[0], tensors[i]);
    bool fits = tensors[i].rank() == shape.rank();
    for (int k = 0; fits && k < shape.rank(); ++k) {
      fits = k == dim || tensors[i].shape()[k] == shape[k];
    }
    if (!fits) {
      throw UsageError("cat: expected tensors of equal extents but for dimension " + std::to_string(dim) +
                       ", got " + tensors[0].describe() + " and, as number " + std::to_string(i) + ", " +
                       tensors[i].describe());
    }
    shape[dim] += tensors[i].shape()[dim];
  }
  return shape;
}

/// x[begin, end) along `dim`, not recorded.
Tensor part_of(const Tensor& x, int dim, std::int64_t begin, std::int64_t end) {
  return x.detach().slice(dim, begin, end);
}

/// The parts' gradients beside each other; zeros where there is none.
Tensor joined_grads(const Tensors& grads, std::span<const std::int64_t> sizes, int dim, Dims shape,
                    const Tensor& some) {
  Tensors parts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    shape[dim] = sizes[i];
    parts.push_back(grads[i].defined() ? grads[i] : Tensor::zeros(shape, some.shared_device(), some.dtype()));
  }
  return cat(parts, dim);
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int given_dim) {
  if (tensors.empty()) throw UsageError("cat: expected at least one tensor, got none");
  const int dim = normalize_dim(given_dim, tensors[0].rank(), "cat");
  const auto mixes = [&](const Tensor& tensor) { return autocast_mixes(tensors[0], tensor); };
  if (std::any_of(tensors.begin(), tensors.end(), mixes)) {
    Tensors full;
    std::transform(tensors.begin(), tensors.end(), std::back_inserter(full), autocast_full);
    return cat(full, dim);
  }
  Tensor result = Tensor::empty(joined_shape(tensors, dim), tensors[0].shared_device(), tensors[0].dtype());
  std::vector<std::int64_t> begins{0};
  for (const Tensor& tensor : tensors) {
    const std::int64_t end = begins.back() + tensor.shape()[dim];
    result.device().kernels().copy(tensor.view(), result.slice(dim, begins.back(), end).view());
    begins.push_back(end);
  }
  if (!recording(tensors)) return result;
  return record("cat", std::move(result), tensors,
                [dim, begins = std::move(begins)](const Tensor& grad, GradSink& sink) {
                  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
                    const int input = static_cast<int>(i);
                    if (sink.wants(input)) sink.deliver(input, grad.slice(dim, begins[i], begins[i + 1]));
                  }
                });
}

Tensor stack(std::span<const Tensor> tensors, int dim) {
  if (tensors.empty()) throw UsageError("stack: expected at least one tensor, got none");
  Tensors rows;
  for (const Tensor& tensor : tensors) {
    if (tensor.shape() != tensors[0].shape()) {
      throw UsageError("stack: expected tensors of one shape, got " + tensors[0].describe() + " and " +
                       tensor.describe());
    }
    rows.push_back(tensor.unsqueeze(dim));
  }
  return cat(rows, dim);
}

Tensors split(const Tensor& x, std::span<const std::int64_t> sizes, int given_dim) {
  const int dim = normalize_dim(given_dim, x.rank(), "split");
  std::int64_t end = 0;
  Tensors parts;
  for (const std::int64_t size : sizes) {
    if (size < 0) throw UsageError("split: expected extents of at least 0, got " + std::to_string(size));
    parts.push_back(part_of(x, dim, end, end + size));
    end += size;
  }
  if (end != x.size(dim) || sizes.empty()) {
    throw UsageError("split: expected extents that add up to " + std::to_string(x.size(dim)) +
                     ", the extent of dimension " + std::to_string(given_dim) + " of " + x.describe() +
                     ", got " + std::to_string(end));
  }
  if (!recording(x)) return parts;
  return record_several("split", std::move(parts), {&x, 1},
                        [dim, kept = std::vector<std::int64_t>(sizes.begin(), sizes.end())](
                            const Tensors& grads, GradSink& sink) {
                          const auto some = std::find_if(grads.begin(), grads.end(),
                                                         [](const Tensor& grad) { return grad.defined(); });
                          sink.deliver(0, joined_grads(grads, kept, dim, sink.shape(0), *some));
                        });
}

Tensors split(const Tensor& x, std::int64_t size, int dim) {
  if (size < 1) throw UsageError("split: expected an extent of at least 1, got " + std::to_string(size));
  std::vector<std::int64_t> sizes;
  const std::int64_t extent = x.size(dim);
  for (std::int64_t begin = 0; begin == 0 || begin < extent; begin += size) {
    sizes.push_back(std::min(size, extent - begin));
  }
  return split(x, sizes, dim);
}

Tensors chunk(const Tensor& x, std::int64_t count, int dim) {
  if (count < 1) throw UsageError("chunk: expected at least one part, got " + std::to_string(count));
  if (x.size(dim) == 0) return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(count), 0), dim);
  return split(x, (x.size(dim) + count - 1) / count, dim);
}

Tensors unbind(const Tensor& x, int dim) {
  Tensors rows = split(x, 1, dim);
  if (x.size(dim) == 0) rows.clear();
  for (Tensor& row : rows) row = row.squeeze(normalize_dim(dim, x.rank(), "unbind"));
  return rows;
}

}  // namespace dtrain
