#include "collectives/shm/shm_progress_engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace dtrain {
namespace {

constexpr std::size_t kMostSlotBytes = 128 * 1024, kLeastSlotBytes = 1024;
// What all rings may take when they are all in use.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

constexpr std::size_t kCacheLine = 64;

// A wait looks where the others run every so many looks for messages, some microseconds.
constexpr int kLooksAtCores = 64;
constexpr std::chrono::microseconds kNapInTheWay{20};

int place_of(int rank, const std::vector<int>& members) {
  return static_cast<int>(std::ranges::lower_bound(members, rank) - members.begin());
}

}  // namespace

ShmLayout::ShmLayout(int size) noexcept : size_(static_cast<std::size_t>(size)) {
  const std::size_t slots = std::max<std::size_t>(1, size_ * (size_ - 1) * SpscRing::kSlots);
  slot_bytes_ = std::clamp(kMostBytes / slots, kLeastSlotBytes, kMostSlotBytes) / kCacheLine * kCacheLine;
}

std::size_t ShmLayout::total_bytes() const noexcept {
  return kCacheLine + size_ * EventCount::kBytes + size_ * (size_ - 1) * SpscRing::bytes_for(slot_bytes_);
}

EventCount ShmLayout::event_count(std::byte* memory, int rank) const noexcept {
  return EventCount(memory + kCacheLine + static_cast<std::size_t>(rank) * EventCount::kBytes);
}

SpscRing ShmLayout::ring(std::byte* memory, int from, int to) const noexcept {
  const std::size_t index =
      static_cast<std::size_t>(from) * (size_ - 1) + static_cast<std::size_t>(to < from ? to : to - 1);
  return {memory + kCacheLine + size_ * EventCount::kBytes + index * SpscRing::bytes_for(slot_bytes_),
          slot_bytes_};
}

ShmProgressEngine::ShmProgressEngine(std::byte* memory, const ShmLayout& layout, int rank,
                                     const std::vector<int>& members, p2p::PolledMessages* others)
    : failed_(ShmLayout::failed(memory)),
      own_events_(layout.event_count(memory, place_of(rank, members))),
      index_of_(static_cast<std::size_t>(members.back()) + 1, -1),
      others_(others) {
  const int own = place_of(rank, members);
  for (const int peer : members) {
    if (peer == rank) continue;
    const int place = place_of(peer, members);
    index_of_[static_cast<std::size_t>(peer)] = static_cast<int>(peers_.size());
    peers_.push_back({peer, layout.ring(memory, own, place), layout.ring(memory, place, own),
                      layout.event_count(memory, place)});
  }
}

ShmProgressEngine::Peer* ShmProgressEngine::peer_of(int rank) noexcept {
  const auto index = static_cast<std::size_t>(rank);
  if (index >= index_of_.size() || index_of_[index] < 0) return nullptr;
  return &peers_[static_cast<std::size_t>(index_of_[index])];
}

void ShmProgressEngine::check_open(int peer) const {
  if (closed_) throw p2p::LinkLost("the group is closed", peer);
  if (failed_.load(std::memory_order_relaxed) != 0) throw p2p::LinkLost("the group has failed elsewhere", -1);
}

void ShmProgressEngine::close(bool failed) noexcept {
  closed_ = true;
  if (!failed) return;
  failed_.store(1, std::memory_order_seq_cst);
  for (Peer& peer : peers_) peer.events.notify();
}

void ShmProgressEngine::send(int peer, std::uint64_t tag, const std::byte* data, std::size_t bytes,
                             int& pending) {
  check_open(peer);
  Peer* const to = peer_of(peer);
  if (to == nullptr) return others_->send(peer, tag, data, bytes, pending);
  to->outgoing.push_back({tag, data, bytes, &pending});
  ++pending;
  if (to->outgoing.size() == 1) flush(*to);
}

void ShmProgressEngine::receive(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes,
                                int& pending) {
  expect(peer, {tag, data, bytes, &pending, nullptr, data}, pending);
}

void ShmProgressEngine::receive_in_place(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes,
                                         int& pending, const std::byte*& place) {
  if (peer_of(peer) == nullptr) place = data;
  expect(peer, {tag, data, bytes, &pending, &place, data}, pending);
}

void ShmProgressEngine::expect(int peer, const Expected& expected, int& pending) {
  check_open(peer);
  Peer* const from = peer_of(peer);
  if (from == nullptr) return others_->receive(peer, expected.tag, expected.data, expected.left, pending);
  from->expected.push_back(expected);
  ++pending;
}

void ShmProgressEngine::release(int peer) noexcept {
  Peer* const from = peer_of(peer);
  if (from == nullptr || !std::exchange(from->held, false)) return;
  from->in.pop();
  from->events.notify();
}

void ShmProgressEngine::wait(const int& pending, p2p::Watchdog& watchdog) {
  wait_until([&] { return pending == 0; }, false, watchdog);
}

int ShmProgressEngine::take_any(std::uint64_t tag, p2p::Watchdog& watchdog) {
  int from = -1;
  // Asked once more after a sleep that it has ended itself: what it took must not be lost.
  wait_until([&] { return from >= 0 || (from = try_take_any(tag)) >= 0; }, true, watchdog);
  return from;
}

// Those of this machine and the others are asked first in turn.
int ShmProgressEngine::try_take_any(std::uint64_t tag) {
  for (std::size_t step = 0; step <= peers_.size(); ++step) {
    const std::size_t index = (next_any_ + step) % (peers_.size() + 1);
    if (index == peers_.size()) {
      const int from = others_ == nullptr ? -1 : others_->try_take_any(tag);
      if (from < 0) continue;
      next_any_ = 0;
      return from;
    }
    Peer& peer = peers_[index];
    if (peer.held || !peer.in.has_piece() || peer.in.front().tag != tag) continue;
    peer.in.pop();
    peer.events.notify();
    next_any_ = index + 1;
    return peer.rank;
  }
  return -1;
}

bool ShmProgressEngine::has_work() const noexcept {
  return std::ranges::any_of(
      peers_, [](const Peer& peer) { return !peer.outgoing.empty() || !peer.expected.empty(); });
}

template <class Over>
void ShmProgressEngine::wait_until(Over over, bool anyone, p2p::Watchdog& watchdog) {
  check_open(-1);
  if (others_ != nullptr) others_->check_peers();
  p2p::Backoff backoff(watchdog, patience_);
  for (int looks = 1; !over(); ++looks) {
    if (progress()) {
      backoff.restart();
      continue;
    }
    check_open(-1);
    // Two ranks may find themselves on one core though there are others. Who looks on keeps the other from
    // running; who sleeps is woken on an idle core.
    const bool in_the_way =
        looks % kLooksAtCores == 0 && patience_ == p2p::Patience::alone && shares_its_core();
    if (in_the_way) sleep(kNapInTheWay, anyone, over);
    backoff.pause([&](Duration nap) { sleep(nap, anyone, over); });
  }
}

// A message through memory ends a sleep at its events, one through a connection a sleep in the kernel's poll;
// who waits for both naps.
template <class Over>
void ShmProgressEngine::sleep(Duration nap, bool anyone, Over over) {
  if (others_ == nullptr || (!anyone && !others_->has_work()))
    return own_events_.await(p2p::kTickEvery, [&] { return progress() || over(); });
  others_->sleep(!anyone && !has_work() ? p2p::kTickEvery : nap, anyone);
}

bool ShmProgressEngine::shares_its_core() noexcept {
  const std::uint32_t core = static_cast<std::uint32_t>(::sched_getcpu()) + 1;
  if (core != core_) own_events_.say_core(core_ = core);
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const Peer& peer) { return peer.events.core() == core; });
}

bool ShmProgressEngine::progress() {
  bool moved = false;
  for (Peer& peer : peers_) {
    moved |= !peer.outgoing.empty() && flush(peer);
    moved |= !peer.expected.empty() && take(peer);
  }
  if (others_ != nullptr && others_->has_work()) moved |= others_->progress();
  return moved;
}

bool ShmProgressEngine::flush(Peer& peer) noexcept {
  bool moved = false;
  while (!peer.outgoing.empty()) {
    Outgoing& message = peer.outgoing.front();
    const std::size_t bytes = std::min(message.left, peer.out.slot_bytes());
    if (!peer.out.write(message.tag, message.data, bytes)) break;
    moved = true;
    peer.events.notify();
    message.data += bytes;
    message.left -= bytes;
    if (message.left > 0) continue;
    --*message.pending;
    peer.outgoing.pop_front();
  }
  return moved;
}

bool ShmProgressEngine::take(Peer& peer) {
  bool moved = false;
  while (!peer.held && peer.in.has_piece()) {
    const SpscRing::Piece piece = peer.in.front();
    const auto message = std::find_if(peer.expected.begin(), peer.expected.end(),
                                      [&](const Expected& expected) { return expected.tag == piece.tag; });
    if (message == peer.expected.end()) break;
    if (piece.bytes > message->left) {
      throw p2p::LinkLost(fmt::format("it sent a message of {} bytes where at most {} were expected",
                                      piece.bytes, message->left),
                          peer.rank);
    }
    moved = true;
    const bool stays =
        message->place != nullptr && message->data == message->begin && piece.bytes == message->left;
    if (stays) {
      *message->place = piece.data;
      peer.held = true;
    } else {
      std::memcpy(message->data, piece.data, piece.bytes);
      peer.in.pop();
      peer.events.notify();
    }
    message->data += piece.bytes;
    message->left -= piece.bytes;
    if (message->left > 0) continue;
    if (message->place != nullptr && !stays) *message->place = message->begin;
    --*message->pending;
    peer.expected.erase(message);
  }
  return moved;
}

void ShmProgressEngine::forget(const int& pending) noexcept {
  const auto is_its = [&](const auto& message) { return message.pending == &pending; };
  for (Peer& peer : peers_) {
    std::erase_if(peer.outgoing, is_its);
    std::erase_if(peer.expected, is_its);
  }
  if (others_ != nullptr) others_->forget(pending);
}

}  // namespace dtrain
