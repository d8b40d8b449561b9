// Pieces are handed out last in, first out: the one used most recently is still in the cache.
#include "runtime/data/buffer_pool.h"

#include "runtime/base/error.h"

namespace dtrain {

BufferPool::BufferPool(std::shared_ptr<Device> device, std::size_t piece_bytes)
    : device_(std::move(device)), piece_bytes_(piece_bytes) {}

BufferPool::~BufferPool() {
  for (std::byte* piece : all_) device_->deallocate_pinned(piece, piece_bytes_);
}

void BufferPool::ensure_free(std::size_t count) {
  const std::lock_guard lock(mutex_);
  while (free_.size() < count) {
    all_.reserve(all_.size() + 1);
    free_.reserve(all_.size() + 1);  // so that give_back never allocates
    auto* const piece = static_cast<std::byte*>(device_->allocate_pinned(piece_bytes_));
    all_.push_back(piece);
    free_.push_back(piece);
  }
}

std::shared_ptr<std::byte> BufferPool::take() {
  std::unique_lock lock(mutex_);
  if (free_.empty())
    throw Error("BufferPool::take: expected a free piece, found none: call ensure_free first");
  std::byte* const piece = free_.back();
  free_.pop_back();
  lock.unlock();  // should the pointer fail to allocate its counter, it gives the piece back by itself
  return {piece, [pool = shared_from_this()](std::byte* back) { pool->give_back(back); }};
}

void BufferPool::give_back(std::byte* piece) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(piece);
}

}  // namespace dtrain
