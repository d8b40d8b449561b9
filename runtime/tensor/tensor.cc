// Creation, inspection and reading back of tensors.
#include "runtime/tensor/tensor.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {

Tensor::Tensor(std::shared_ptr<Storage> storage, const View& view)
    : body_(std::make_shared<Body>(Body{std::move(storage), view, nullptr})) {
  if (view.data != nullptr)
    body_->offset = static_cast<std::byte*>(view.data) - static_cast<std::byte*>(body_->storage->data());
}

Tensor Tensor::empty(const Dims& shape, const std::shared_ptr<Device>& device, DType dtype,
                     MemoryFormat format) {
  check_extents("tensor shape", shape, size_of(dtype));
  if (device == nullptr) throw UsageError("tensor: expected a device, got null");
  if (format == MemoryFormat::channels_last && shape.rank() != 4) {
    throw UsageError("tensor: channels-last needs 4 dimensions [N, C, H, W], got shape " + shape.to_string());
  }
  const auto bytes = static_cast<std::size_t>(shape.product()) * size_of(dtype);
  auto storage = Storage::allocate(device, bytes);
  const Dims strides =
      format == MemoryFormat::channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  return Tensor(storage, View{storage->data(), dtype, shape, strides});
}

Tensor Tensor::borrow(const View& view, const std::shared_ptr<Device>& device, std::shared_ptr<void> owner) {
  check_extents("tensor shape", view.shape);
  if (device == nullptr) throw UsageError("tensor: expected a device, got null");
  return Tensor(Storage::borrow(device, view.data, std::move(owner)), view);
}

Tensor Tensor::borrow_host(void* values, std::size_t count, DType dtype, const Dims& shape,
                           const std::shared_ptr<Device>& device, std::shared_ptr<void> owner) {
  check_extents("tensor shape", shape, size_of(dtype));
  if (static_cast<std::int64_t>(count) != shape.product()) {
    throw UsageError("borrow: shape " + shape.to_string() + " needs " + std::to_string(shape.product()) +
                     " values, got " + std::to_string(count));
  }
  if (device != nullptr && device->type() != DeviceType::cpu) {
    throw UsageError("borrow: host memory can be used in place on a CPU only, got " + device->name() +
                     "; copy it there with from_data()");
  }
  return borrow(View{values, dtype, shape, contiguous_strides(shape)}, device, std::move(owner));
}

Tensor Tensor::from_host(const void* values, std::size_t count, DType dtype, const Dims& shape,
                         const std::shared_ptr<Device>& device) {
  check_extents("tensor shape", shape, size_of(dtype));
  if (static_cast<std::int64_t>(count) != shape.product()) {
    throw UsageError("from_data: shape " + shape.to_string() + " needs " + std::to_string(shape.product()) +
                     " values, got " + std::to_string(count));
  }
  Tensor result = empty(shape, device, dtype);
  if (count > 0) {
    device->copy(result.view().data, values, count * size_of(dtype), CopyKind::host_to_device,
                 device->compute_stream());
  }
  return result;
}

void Tensor::to_host(void* values, DType dtype) const {
  if (numel() == 0) return;
  const Tensor dense = detach().to(dtype).contiguous();
  Device& on = device();
  on.copy(values, dense.view().data, static_cast<std::size_t>(numel()) * size_of(dtype),
          CopyKind::device_to_host, on.compute_stream());
  on.compute_stream().synchronize();
}

const View& Tensor::view() const {
  if (body_ == nullptr) throw UsageError("an undefined tensor was used: it was never assigned");
  if (body_->storage->had_hook()) {
    body_->storage->materialize();
    body_->view.data = static_cast<std::byte*>(body_->storage->data()) + body_->offset;
  }
  return body_->view;
}

const View& Tensor::layout() const {
  if (body_ == nullptr) throw UsageError("an undefined tensor was used: it was never assigned");
  return body_->view;
}

const std::shared_ptr<Storage>& Tensor::storage() const {
  if (body_ == nullptr) throw UsageError("an undefined tensor was used: it was never assigned");
  return body_->storage;
}

std::int64_t Tensor::size(int dim) const {
  const Dims& extents = shape();
  const int index = dim < 0 ? dim + extents.rank() : dim;
  if (index < 0 || index >= extents.rank()) {
    throw UsageError("size: dimension " + std::to_string(dim) + " is outside shape " + extents.to_string());
  }
  return extents[index];
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  return format == MemoryFormat::channels_last ? layout().is_channels_last() : layout().is_contiguous();
}

MemoryFormat Tensor::memory_format() const {
  const View& view = layout();
  return !view.is_contiguous() && view.is_channels_last() ? MemoryFormat::channels_last
                                                          : MemoryFormat::contiguous;
}

std::string Tensor::describe() const {
  if (!defined()) return "undefined";
  return std::string(name_of(dtype())) + " " + shape().to_string();
}

double Tensor::item() const {
  if (numel() != 1) throw UsageError("item: expected a tensor of one element, got " + describe());
  return to_vector<double>()[0];
}

bool Tensor::shares_storage(const Tensor& other) const { return storage() == other.storage(); }

bool Tensor::is_sole_owner() const noexcept { return is_only_view() && body_->autograd == nullptr; }

bool Tensor::is_only_view() const noexcept {
  return body_ != nullptr && body_.use_count() == 1 && body_->storage.use_count() == 1 &&
         !body_->storage->is_borrowed();
}

Tensor Tensor::alias(void* data, const Dims& shape, const Dims& strides) const {
  return Tensor(storage(), View{data, dtype(), shape, strides});
}

Tensor Tensor::detach() const {
  Tensor result;
  result.body_ = std::make_shared<Body>(Body{storage(), layout(), nullptr, body_->offset});
  return result;
}

namespace {

// Per thread, as operations are.
thread_local std::uint64_t operations = 0;

}  // namespace

void end_operation() noexcept { ++operations; }

std::uint64_t operations_ended() noexcept { return operations; }

const std::shared_ptr<AutogradState>& Tensor::autograd_state() const noexcept {
  static const std::shared_ptr<AutogradState> kNone;
  return body_ == nullptr ? kNone : body_->autograd;
}

void Tensor::attach(std::shared_ptr<AutogradState> state) {
  layout();  // refuses an undefined tensor
  body_->autograd = std::move(state);
}

}  // namespace dtrain
