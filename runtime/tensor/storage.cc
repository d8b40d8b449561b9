#include "runtime/tensor/storage.h"

#include <utility>

#include "runtime/base/error.h"

namespace dtrain {

Storage::Storage(std::shared_ptr<Device> device, void* data, std::size_t bytes, bool borrowed,
                 std::shared_ptr<void> owner)
    : device_(std::move(device)), owner_(std::move(owner)), data_(data), bytes_(bytes), borrowed_(borrowed) {}

std::shared_ptr<Storage> Storage::allocate(std::shared_ptr<Device> device, std::size_t bytes) {
  // The shared_ptr is made before the memory so that nothing leaks when either fails.
  std::shared_ptr<Storage> storage(new Storage(std::move(device), nullptr, bytes, false, nullptr));
  if (bytes > 0) storage->data_ = storage->device_->allocate(bytes);
  return storage;
}

std::shared_ptr<Storage> Storage::borrow(std::shared_ptr<Device> device, void* data,
                                         std::shared_ptr<void> owner) {
  return std::shared_ptr<Storage>(new Storage(std::move(device), data, 0, true, std::move(owner)));
}

Storage::~Storage() {
  if (!borrowed_ && data_ != nullptr) device_->deallocate(data_, bytes_);
}

void Storage::set_hook(std::shared_ptr<StorageHook> hook) {
  if (borrowed_ || bytes_ == 0)
    throw UsageError("storage: expected memory of its own that can come and go, got borrowed memory or none");
  hook_ = std::move(hook);
  had_hook_ = true;
}

void Storage::materialize() {
  if (const auto hook = hook_) hook->materialize(*this);
  if (data_ == nullptr) {
    throw UsageError(
        "a tensor was used after its memory was released: the strategy that sharded this parameter is gone");
  }
}

void Storage::free() noexcept {
  for (const auto& companion : companions_) {
    if (const auto storage = companion.lock()) storage->free();
  }
  if (data_ == nullptr || borrowed_) return;
  device_->deallocate(data_, bytes_);
  data_ = nullptr;
}

void Storage::resize(std::size_t bytes) {
  data_ = device_->allocate(bytes);
  bytes_ = bytes;
}

void Storage::take_along(const std::shared_ptr<Storage>& other) {
  std::erase_if(companions_, [](const auto& companion) { return companion.expired(); });
  companions_.push_back(other);
}

}  // namespace dtrain
