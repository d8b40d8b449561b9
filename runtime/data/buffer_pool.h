// Equal pieces of pinned host memory that go round between loader threads and the batches a trainer holds.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/device.h"

namespace dtrain {

/// Lives as long as the loader or any batch that still holds a piece. Thread-safe, but for the device's own
/// rules: ensure_free() allocates in the calling thread, the destructor gives everything back in the last
/// holder's.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  BufferPool(std::shared_ptr<Device> device, std::size_t piece_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Allocates until `count` pieces are free. Throws DeviceError.
  void ensure_free(std::size_t count);

  /// A free piece, which comes back when the last copy of the pointer is gone. The caller has made sure that
  /// there is one. Never allocates a piece.
  std::shared_ptr<std::byte> take();

 private:
  void give_back(std::byte* piece) noexcept;

  std::shared_ptr<Device> device_;
  std::size_t piece_bytes_;
  std::mutex mutex_;
  std::vector<std::byte*> all_;
  std::vector<std::byte*> free_;
};

}  // namespace dtrain
