#include "collectives/shm/shm_progress_engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace dtrain {
namespace {

constexpr std::size_t kMostSlotBytes = 128 * 1024, kLeastSlotBytes = 4096;
// What all rings may take when they are all in use.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

constexpr std::size_t kCacheLine = 64;

// A wait looks where the others run every so many looks for messages, some microseconds.
constexpr int kLooksAtCores = 64;

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

ShmProgressEngine::ShmProgressEngine(std::byte* memory, const ShmLayout& layout, int rank, int size)
    : rank_(rank), failed_(ShmLayout::failed(memory)), own_events_(layout.event_count(memory, rank)) {
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    peers_.push_back({peer, layout.ring(memory, rank, peer), layout.ring(memory, peer, rank),
                      layout.event_count(memory, peer)});
  }
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
  Peer& to = peer_of(peer);
  to.outgoing.push_back({tag, data, bytes, &pending});
  ++pending;
  if (to.outgoing.size() == 1) flush(to);
}

void ShmProgressEngine::receive(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes,
                                int& pending) {
  expect(peer, {tag, data, bytes, &pending, nullptr, data}, pending);
}

void ShmProgressEngine::receive_in_place(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes,
                                         int& pending, const std::byte*& place) {
  expect(peer, {tag, data, bytes, &pending, &place, data}, pending);
}

void ShmProgressEngine::expect(int peer, const Expected& expected, int& pending) {
  check_open(peer);
  peer_of(peer).expected.push_back(expected);
  ++pending;
}

void ShmProgressEngine::release(int peer) noexcept {
  Peer& from = peer_of(peer);
  if (!std::exchange(from.held, false)) return;
  from.in.pop();
  from.events.notify();
}

void ShmProgressEngine::wait(const int& pending, p2p::Watchdog& watchdog) {
  wait_until([&] { return pending == 0; }, watchdog);
}

int ShmProgressEngine::take_any(std::uint64_t tag, p2p::Watchdog& watchdog) {
  Peer* found = nullptr;
  const auto look = [&] {
    for (std::size_t step = 0; step < peers_.size() && found == nullptr; ++step) {
      Peer& peer = peers_[(next_any_ + step) % peers_.size()];
      if (!peer.held && peer.in.has_piece() && peer.in.front().tag == tag) found = &peer;
    }
    return found != nullptr;
  };
  wait_until(look, watchdog);
  found->in.pop();
  found->events.notify();
  next_any_ = static_cast<std::size_t>(found - peers_.data()) + 1;
  return found->rank;
}

template <class Over>
void ShmProgressEngine::wait_until(Over over, p2p::Watchdog& watchdog) {
  check_open(-1);
  p2p::Backoff backoff(watchdog, patience_);
  const auto sleep = [&] { own_events_.await(p2p::kTickEvery, [&] { return progress() || over(); }); };
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
    if (in_the_way) sleep();
    backoff.pause([&](Duration) { sleep(); });
  }
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
      throw p2p::LinkLost(fmt::format("a message of it has {} bytes where at most {} were expected",
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
}

}  // namespace dtrain
