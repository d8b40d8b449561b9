#include "training/tensor_dataset.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/data/sources/tensor_source.h"

namespace dtrain {
namespace {

std::int64_t classes_of(const std::string& name, const Tensor& labels) {
  if (labels.numel() == 0) return 0;
  const auto least = static_cast<std::int64_t>(labels.min().item());
  if (least < 0) throw UsageError(fmt::format("{}: expected labels from 0 on, got {}", name, least));
  return static_cast<std::int64_t>(labels.max().item()) + 1;
}

}  // namespace

std::shared_ptr<const Source> tensor_dataset(const NamedTensors& fields, const std::string& name) {
  if (fields.empty()) throw UsageError(fmt::format("{}: expected at least one tensor, got none", name));
  std::vector<TensorField> columns;
  for (const auto& [field, tensor] : fields) {
    if (!tensor.defined())
      throw UsageError(fmt::format("{}: expected a tensor for {}, got none", name, field));
    Tensor rows = tensor.detach();
    if (rows.device().type() != DeviceType::cpu) rows = rows.to(make_device("cpu"));
    const bool is_label = field == "label" && rows.dtype() == DType::i64 && rows.rank() == 1;
    const auto owner = std::make_shared<const Tensor>(rows);
    columns.push_back({.name = field,
                       .view = owner->view(),
                       .owner = owner,
                       .values = is_label ? classes_of(name, rows) : 0});
  }
  return std::make_shared<const TensorSource>(name, std::move(columns));
}

}  // namespace dtrain
