#include "training/batch_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

Tensor to_tensor(const View& view, DType dtype, const Batch& batch, const std::shared_ptr<Device>& device) {
  const bool on_cpu = device->type() == DeviceType::cpu;
  if (on_cpu && view.dtype == dtype) return Tensor::borrow(view, device, batch.memory);
  const Tensor there =
      on_cpu ? Tensor::borrow(view, device, batch.memory) : empty_for(view, view.dtype, device);
  if (!on_cpu) {
    device->copy(there.view().data, view.data, static_cast<std::size_t>(view.numel()) * size_of(view.dtype),
                 CopyKind::host_to_device, device->compute_stream());
  }
  if (view.dtype == dtype) return there;
  Tensor values = empty_for(view, dtype, device);
  decode_bytes(there.view(), values.view(), *device);
  return values;
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

Tensor empty_for(const View& view, DType dtype, const std::shared_ptr<Device>& device) {
  return Tensor::empty(view.shape, device, dtype,
                       view.is_contiguous() ? MemoryFormat::contiguous : MemoryFormat::channels_last);
}

void decode_bytes(const View& bytes, const View& values, Device& device) {
  device.kernels().affine(bytes, 1.0 / 255, 0.0, values);
}

BatchTensors to_tensors(const Batch& batch, const std::shared_ptr<Device>& device) {
  std::vector<Tensor> tensors;
  tensors.reserve(batch.views().size());
  for (std::size_t i = 0; i < batch.views().size(); ++i)
    tensors.push_back(to_tensor(batch.views()[i], batch.fields()[i].dtype, batch, device));
  return {batch.fields(), std::move(tensors)};
}

}  // namespace dtrain
