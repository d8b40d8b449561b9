#include "runtime/device/between.h"

namespace dtrain {
namespace {

/// What is queued on `later` from now on waits for what is queued on `earlier`.
void order(Device& earlier, Device& later) {
  const std::unique_ptr<Event> so_far = earlier.make_event();
  so_far->record(earlier.compute_stream());
  so_far->make_wait(later.compute_stream());
}

}  // namespace

bool share_memory(const Device& a, const Device& b) noexcept {
  return &a == &b || (a.type() == DeviceType::cpu && b.type() == DeviceType::cpu);
}

void copy_between(Device& source, const void* from, Device& target, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  const bool to_host = target.type() == DeviceType::cpu;
  if (to_host || source.type() == DeviceType::cpu) {
    // The side that has a queue orders the copy.
    Device& queue = to_host ? source : target;
    const CopyKind kind = to_host ? CopyKind::device_to_host : CopyKind::host_to_device;
    queue.copy(to, from, bytes, kind, queue.compute_stream());
    return queue.compute_stream().synchronize();
  }
  if (&source != &target) order(source, target);
  target.copy(to, from, bytes, CopyKind::device_to_device, target.compute_stream());
  if (&source != &target) order(target, source);
}

}  // namespace dtrain
