#include "runtime/tensor/storage.h"

#include <utility>

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

}  // namespace dtrain
