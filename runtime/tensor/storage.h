// Owns the memory behind one or more tensors and counts its modifications, so that autograd can tell when a
// value it kept for backward has been overwritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/device.h"

namespace dtrain {

class Storage;

/// Brings back memory that was let go of: of parameters that are divided among ranks, say.
class StorageHook {
 public:
  virtual ~StorageHook() = default;
  /// Somebody is about to use `storage`, in this thread: gives it memory with its values where it has none
  /// (Storage::resize()). Called before each use, so it is short where there is nothing to do. What it
  /// throws leaves the use.
  virtual void materialize(Storage& storage) = 0;
};

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
  /// Of the memory that this storage owns; 0 where it is borrowed.
  std::size_t bytes() const noexcept { return bytes_; }

  // ---- memory that comes and goes: the same for all views, which follow it to where it is
  /// From now on `hook` is asked before each use, until it is replaced; null: what is there stays, and what
  /// is not cannot be used any more. Only for memory that this storage owns, more than 0 bytes.
  void set_hook(std::shared_ptr<StorageHook> hook);
  /// Whether a hook was ever set.
  bool had_hook() const noexcept { return had_hook_; }
  bool is_there() const noexcept { return data_ != nullptr; }
  /// Asks the hook. Throws UsageError where there is no memory afterwards, and what the hook throws.
  void materialize();
  /// Frees the memory, and that of storages that go with it. Work that is queued may still use it.
  void free() noexcept;
  /// New memory of `bytes`, uninitialised, in the place of none; views see the beginning of it. Throws
  /// DeviceError when there is none.
  void resize(std::size_t bytes);
  /// `other` (made from this one's values: a copy in another precision) is let go of whenever this one is.
  void take_along(const std::shared_ptr<Storage>& other);

  /// Grows with every modification through any view.
  std::uint64_t version() const noexcept { return version_; }
  void mark_modified() noexcept { ++version_; }
  /// Takes the place of `before`: what remembers a version of that notices.
  void replace(const Storage& before) noexcept { version_ = before.version_ + 1; }

 private:
  Storage(std::shared_ptr<Device> device, void* data, std::size_t bytes, bool borrowed,
          std::shared_ptr<void> owner);

  std::shared_ptr<Device> device_;
  std::shared_ptr<void> owner_;
  std::shared_ptr<StorageHook> hook_;
  std::vector<std::weak_ptr<Storage>> companions_;
  void* data_;
  std::size_t bytes_;
  std::uint64_t version_ = 0;
  bool borrowed_;
  bool had_hook_ = false;
};

}  // namespace dtrain
