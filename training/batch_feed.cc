#include "training/batch_feed.h"

namespace dtrain {
namespace {

std::size_t bytes_of(const View& view) {
  return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
}

Tensor empty_like(const View& view, const std::shared_ptr<Device>& device) {
  return Tensor::empty(view.shape, device, view.dtype,
                       view.is_contiguous() ? MemoryFormat::contiguous : MemoryFormat::channels_last);
}

constexpr std::size_t kAlignment = 256;

}  // namespace

BatchFeed::BatchFeed(const std::shared_ptr<Device>& device)
    : device_(device), copies_(device->make_stream()) {
  for (Landing& landing : landings_) landing = {{}, device->make_event(), device->make_event()};
}

BatchFeed::Landing& BatchFeed::next_landing(std::size_t bytes) {
  Landing& landing = landings_[next_++ % landings_.size()];
  Stream& compute = device_->compute_stream();
  if (!landing.memory.defined() || landing.memory.numel() < static_cast<std::int64_t>(bytes)) {
    landing.memory = Tensor::empty({static_cast<std::int64_t>(bytes)}, device_, DType::u8);
    landing.free->record(compute);  // memory is usable from here on in the compute stream's order
  }
  landing.free->make_wait(*copies_);
  return landing;
}

BatchTensors BatchFeed::take(const Batch& batch) {
  if (device_->type() == DeviceType::cpu) return to_tensors(batch, device_);
  const BatchTensors to{empty_like(batch.inputs, device_), empty_like(batch.labels, device_)};
  take_into(batch, to);
  return to;
}

void BatchFeed::take_into(const Batch& batch, const BatchTensors& to) {
  const std::size_t inputs = bytes_of(batch.inputs), labels = bytes_of(batch.labels);
  const std::size_t labels_at = (inputs + kAlignment - 1) / kAlignment * kAlignment;
  Landing& landing = next_landing(labels_at + labels);
  auto* const base = landing.memory.view().as<std::byte>();
  device_->copy(base, batch.inputs.data, inputs, CopyKind::host_to_device, *copies_);
  device_->copy(base + labels_at, batch.labels.data, labels, CopyKind::host_to_device, *copies_);
  landing.arrived->record(*copies_);
  Stream& compute = device_->compute_stream();
  landing.arrived->make_wait(compute);
  device_->copy(to.inputs.view().data, base, inputs, CopyKind::device_to_device, compute);
  device_->copy(to.labels.view().data, base + labels_at, labels, CopyKind::device_to_device, compute);
  landing.free->record(compute);
}

}  // namespace dtrain
