// Tensors as samples, as torch.utils.data.TensorDataset makes them.
#pragma once

#include <memory>
#include <string>

#include "runtime/data/source.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// Sample i is row i of each of `fields`, [N, …], in their order and by their names. An int64 field `label`
/// [N] has the classes 0 … its largest. Tensors of a CPU share their memory with the source, and must not
/// change; others are copied. Throws UsageError for no fields, for one without dimensions or with another N,
/// and for labels below 0.
///
///     const auto pairs = tensor_dataset({{"x", x}, {"y", y}});
///     Loader loader(pairs, device, {.batch_size = 32});
std::shared_ptr<const Source> tensor_dataset(const NamedTensors& fields, const std::string& name = "tensors");

}  // namespace dtrain
