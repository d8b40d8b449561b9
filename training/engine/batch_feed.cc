#include "training/engine/batch_feed.h"

namespace dtrain {
namespace {

std::size_t bytes_of(const View& view) {
  return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
}

std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

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
  std::vector<Tensor> tensors;
  tensors.reserve(batch.views().size());
  for (std::size_t i = 0; i < batch.views().size(); ++i)
    tensors.push_back(empty_for(batch.views()[i], batch.fields()[i].dtype, device_));
  const BatchTensors to(batch.fields(), std::move(tensors));
  take_into(batch, to);
  return to;
}

void BatchFeed::take_into(const Batch& batch, const BatchTensors& to) {
  const std::span<const View> views = batch.views();
  std::size_t bytes = 0;
  for (const View& view : views) bytes += aligned(bytes_of(view));
  Landing& landing = next_landing(bytes);
  auto* at = landing.memory.view().as<std::byte>();
  for (const View& view : views) {
    device_->copy(at, view.data, bytes_of(view), CopyKind::host_to_device, *copies_);
    at += aligned(bytes_of(view));
  }
  landing.arrived->record(*copies_);
  Stream& compute = device_->compute_stream();
  landing.arrived->make_wait(compute);
  at = landing.memory.view().as<std::byte>();
  for (std::size_t i = 0; i < views.size(); ++i) {
    const View target = to.tensors()[i].view();
    if (target.dtype == views[i].dtype) {
      device_->copy(target.data, at, bytes_of(views[i]), CopyKind::device_to_device, compute);
    } else {
      View landed = views[i];
      landed.data = at;
      decode_bytes(landed, target, *device_);
    }
    at += aligned(bytes_of(views[i]));
  }
  landing.free->record(compute);
}

}  // namespace dtrain
