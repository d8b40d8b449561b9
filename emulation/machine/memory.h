// Memory that CUDA hands out. Its contents are undefined, so they are made to hurt: bytes of 0xFF are NaNs
// and indices of -1, before the first write and after the free. Zones around each piece are looked at when it
// goes.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace emulation {

enum class MemoryKind { device, pinned, managed };

/// A piece that is handed out.
struct Piece {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;
  bool pooled = false;   ///< from a stream-ordered pool
  bool adopted = false;  ///< the program's own
};

/// Thread-safe.
class Memory {
 public:
  explicit Memory(std::size_t device_bytes) : device_bytes_(device_bytes) {}

  /// Aligned to 256; null when the device has no room for it.
  void* allocate(MemoryKind kind, int device, std::size_t bytes, bool pooled = false);
  /// What holds `address`, which may lie inside it.
  std::optional<Piece> find(const void* address) const;
  /// Gives back what begins at `address`; false when nothing does. `damage` says what was written around it.
  bool release(void* address, std::string& damage);
  /// Memory of the program's own counts as pinned from now on; false where a piece is in the way.
  bool adopt(void* address, std::size_t bytes);
  /// And no longer; false for memory that was not adopted.
  bool abandon(void* address);
  std::size_t used(int device) const;
  std::size_t total() const noexcept { return device_bytes_; }

 private:
  const std::size_t device_bytes_;
  mutable std::mutex mutex_;
  std::map<std::byte*, Piece> pieces_;
  std::map<int, std::size_t> used_;
};

}  // namespace emulation
