#include "training/batch_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

Tensor to_tensor(const View& view, const Batch& batch, const std::shared_ptr<Device>& device) {
  if (device->type() == DeviceType::cpu) return Tensor::borrow(view, device, batch.memory);
  Tensor copy = empty_like(view, device);
  device->copy(copy.view().data, view.data, static_cast<std::size_t>(view.numel()) * size_of(view.dtype),
               CopyKind::host_to_device, device->compute_stream());
  return copy;
}

}  // namespace

BatchTensors::BatchTensors(std::span<const Field> fields, std::vector<Tensor> tensors)
    : tensors_(std::move(tensors)) {
  names_.reserve(fields.size());
  for (const Field& field : fields) names_.push_back(field.name);
}

const Tensor& BatchTensors::operator[](std::string_view field) const {
  const auto found = std::find(names_.begin(), names_.end(), field);
  if (found == names_.end())
    throw UsageError(
        fmt::format("batch: expected one of its fields ({}), got \"{}\"", fmt::join(names_, ", "), field));
  return tensors_[static_cast<std::size_t>(found - names_.begin())];
}

bool BatchTensors::contains(std::string_view field) const noexcept {
  return std::find(names_.begin(), names_.end(), field) != names_.end();
}

Tensor empty_like(const View& view, const std::shared_ptr<Device>& device) {
  return Tensor::empty(view.shape, device, view.dtype,
                       view.is_contiguous() ? MemoryFormat::contiguous : MemoryFormat::channels_last);
}

BatchTensors to_tensors(const Batch& batch, const std::shared_ptr<Device>& device) {
  std::vector<Tensor> tensors;
  tensors.reserve(batch.views().size());
  for (const View& view : batch.views()) tensors.push_back(to_tensor(view, batch, device));
  return {batch.fields(), std::move(tensors)};
}

}  // namespace dtrain
