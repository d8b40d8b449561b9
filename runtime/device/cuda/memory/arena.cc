#include "runtime/device/cuda/memory/arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrain::cuda {

Arena::Arena(std::function<void*(std::size_t)> grow, std::function<void(void*)> release)
    : grow_(std::move(grow)), release_(std::move(release)) {}

Arena::~Arena() {
  for (void* segment : segments_) release_(segment);
}

// The smallest piece that is large enough, the first of several.
Arena::Pieces::iterator Arena::find_room(std::size_t bytes) {
  auto best = free_.end();
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    if (piece->second.bytes < bytes) continue;
    if (best == free_.end() || piece->second.bytes < best->second.bytes) best = piece;
  }
  return best;
}

Arena::Pieces::iterator Arena::add_segment(std::size_t bytes) {
  const std::size_t size = std::max(bytes, kSmallestSegment);
  segments_.reserve(segments_.size() + 1);  // nothing may throw once there is a segment
  auto* const begin = static_cast<std::byte*>(grow_(size));
  segments_.push_back(begin);
  return free_.emplace(begin, Piece{size, segments_.size() - 1}).first;
}

void* Arena::allocate(std::size_t bytes) {
  const std::size_t wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto room = find_room(wanted);
  if (room == free_.end()) room = add_segment(wanted);
  const auto [begin, piece] = *room;
  free_.erase(room);
  if (piece.bytes > wanted) free_.emplace(begin + wanted, Piece{piece.bytes - wanted, piece.segment});
  used_.emplace(begin, Piece{wanted, piece.segment});
  return begin;
}

bool Arena::deallocate(void* memory) {
  const auto used = used_.find(static_cast<std::byte*>(memory));
  if (used == used_.end()) return false;
  auto [begin, piece] = *used;
  used_.erase(used);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + piece.bytes && next->second.segment == piece.segment) {
    piece.bytes += next->second.bytes;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin && before->second.segment == piece.segment) {
      before->second.bytes += piece.bytes;
      return true;
    }
  }
  free_.emplace(begin, piece);
  return true;
}

}  // namespace dtrain::cuda
