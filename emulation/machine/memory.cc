#include "emulation/machine/memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

namespace emulation {
namespace {

constexpr std::size_t kAlignment = 256, kZone = 256;
constexpr int kPoison = 0xFF, kZoneByte = 0xA5;
// Of a large piece only the ends are poisoned: much of it is workspace that nobody touches.
constexpr std::size_t kLarge = std::size_t{16} << 20, kEnd = std::size_t{1} << 20;

void poison(std::byte* data, std::size_t bytes) {
  if (bytes <= kLarge) {
    std::memset(data, kPoison, bytes);
    return;
  }
  std::memset(data, kPoison, kEnd);
  std::memset(data + bytes - kEnd, kPoison, kEnd);
}

bool is_whole(const std::byte* zone, std::size_t bytes) {
  return std::all_of(zone, zone + bytes, [](std::byte b) { return b == std::byte{kZoneByte}; });
}

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void* Memory::allocate(MemoryKind kind, int device, std::size_t bytes, bool pooled) {
  const std::lock_guard lock(mutex_);
  if (kind != MemoryKind::pinned) {
    std::size_t& used = used_[device];
    if (bytes > device_bytes_ || used > device_bytes_ - bytes) return nullptr;
    used += bytes;
  }
  auto* const base = static_cast<std::byte*>(
      ::operator new (padded(bytes) + 2 * kZone, std::align_val_t{kAlignment}, std::nothrow));
  if (base == nullptr) {
    if (kind != MemoryKind::pinned) used_[device] -= bytes;
    return nullptr;
  }
  std::byte* const data = base + kZone;
  std::memset(base, kZoneByte, kZone);
  std::memset(data + bytes, kZoneByte, padded(bytes) - bytes + kZone);
  poison(data, bytes);
  pieces_.emplace(data, Piece{data, bytes, kind, device, pooled});
  return data;
}

std::optional<Piece> Memory::find(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto next = pieces_.upper_bound(const_cast<std::byte*>(at));
  if (next == pieces_.begin()) return std::nullopt;
  const Piece& piece = std::prev(next)->second;
  if (at >= piece.data + std::max<std::size_t>(piece.bytes, 1)) return std::nullopt;
  return piece;
}

bool Memory::release(void* address, std::string& damage) {
  auto* const data = static_cast<std::byte*>(address);
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(data);
  if (found == pieces_.end() || found->second.adopted) return false;
  const Piece piece = found->second;
  const bool before = is_whole(data - kZone, kZone);
  const bool behind = is_whole(data + piece.bytes, padded(piece.bytes) - piece.bytes + kZone);
  if (!before || !behind) {
    damage = std::string("memory ") + (before ? "behind" : "before") + " a piece of " +
             std::to_string(piece.bytes) + " bytes was overwritten";
  }
  poison(data, piece.bytes);
  if (piece.kind != MemoryKind::pinned) used_[piece.device] -= piece.bytes;
  pieces_.erase(found);
  ::operator delete (data - kZone, std::align_val_t{kAlignment});
  return true;
}

bool Memory::adopt(void* address, std::size_t bytes) {
  auto* const data = static_cast<std::byte*>(address);
  const std::lock_guard lock(mutex_);
  const auto next = pieces_.lower_bound(data);
  if (next != pieces_.end() && next->second.data < data + bytes) return false;
  if (next != pieces_.begin() && std::prev(next)->second.data + std::prev(next)->second.bytes > data)
    return false;
  pieces_.emplace(data, Piece{data, bytes, MemoryKind::pinned, 0, false, true});
  return true;
}

bool Memory::abandon(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(static_cast<std::byte*>(address));
  if (found == pieces_.end() || !found->second.adopted) return false;
  pieces_.erase(found);
  return true;
}

std::size_t Memory::used(int device) const {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

}  // namespace emulation
