// Owns the memory behind one or more tensors and counts its modifications, so that autograd can tell when a
// value it kept for backward has been overwritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/device/device.h"

namespace dtrain {

/// Memory of one device, shared by all views of a tensor. Not thread-safe but for its reference count.
class Storage {
 public:
  /// `bytes` of uninitialised device memory; null data when 0. Throws DeviceError when there is none.
  static std::shared_ptr<Storage> allocate(std::shared_ptr<Device> device, std::size_t bytes);
  /// Wraps foreign memory of `device`, kept alive through `owner` (which may be null: then the caller
  /// promises that the memory outlives every view).
  static std::shared_ptr<Storage> borrow(std::shared_ptr<Device> device, void* data,
                                         std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const noexcept { return data_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  bool is_borrowed() const noexcept { return borrowed_; }

  /// Grows with every modification through any view.
  std::uint64_t version() const noexcept { return version_; }
  void mark_modified() noexcept { ++version_; }

 private:
  Storage(std::shared_ptr<Device> device, void* data, std::size_t bytes, bool borrowed,
          std::shared_ptr<void> owner);

  std::shared_ptr<Device> device_;
  std::shared_ptr<void> owner_;
  void* data_;
  std::size_t bytes_;
  std::uint64_t version_ = 0;
  bool borrowed_;
};

}  // namespace dtrain
