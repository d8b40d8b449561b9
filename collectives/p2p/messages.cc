// Messages between pairs of ranks: many at once, to everyone, and from anyone.
#include <cstring>
#include <numeric>

#include "collectives/p2p/algorithms.h"
#include "collectives/p2p/call.h"

namespace dtrain::p2p {
namespace {

// Regions are written only by receives; a region that only sends may map constant memory.
void* for_sending(const void* data) { return const_cast<void*>(data); }

// Where each rank's part begins, and behind them the end; in elements.
std::vector<std::size_t> begins_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> begins(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
  return begins;
}

}  // namespace

// The count is part of the tag: where two ranks disagree nothing moves, and their notes tell why. The barrier
// keeps a rank that expects nothing from leaving before that.
void Exchange::all_to_all(const void* input, std::span<const std::size_t> sends, void* output,
                          std::span<const std::size_t> receives, std::size_t width) {
  const std::vector<std::size_t> from = begins_of(sends), to = begins_of(receives);
  const auto own = static_cast<std::size_t>(rank_);
  if (sends[own] > 0) {
    std::memcpy(static_cast<std::byte*>(output) + to[own] * width,
                static_cast<const std::byte*>(input) + from[own] * width, sends[own] * width);
  }
  const auto incoming = transport_.map(output, to.back() * width);
  const auto outgoing = transport_.map(for_sending(input), from.back() * width);
  for_each_peer([&](int peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (receives[index] == 0) return;
    incoming->receive(peer, counted_fingerprint(tag_, receives[index]), to[index] * width,
                      receives[index] * width);
  });
  for_each_peer([&](int peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (sends[index] == 0) return;
    outgoing->send(peer, counted_fingerprint(tag_, sends[index]), from[index] * width, sends[index] * width);
  });
  incoming->wait_receives(watch_);
  outgoing->wait_sends(watch_);
  barrier(2);
}

void Exchange::send(const void* data, std::size_t bytes, int to) {
  const auto region = transport_.map(for_sending(data), bytes);
  region->send(to, tag_, 0, bytes);
  region->wait_sends(watch_);
}

void Exchange::receive(void* data, std::size_t bytes, int from) {
  const auto region = transport_.map(data, bytes);
  region->receive(from, tag_, 0, bytes);
  region->wait_receives(watch_);
}

void Exchange::exchange(std::span<const Letter> letters) {
  std::vector<std::unique_ptr<Region>> regions;
  for (const bool sends : {false, true}) {
    for (const Letter& letter : letters) {
      if (letter.sends != sends || letter.bytes == 0) continue;
      Region& region = *regions.emplace_back(transport_.map(letter.data, letter.bytes));
      sends ? region.send(letter.peer, letter.tag, 0, letter.bytes)
            : region.receive(letter.peer, letter.tag, 0, letter.bytes);
    }
  }
  for (const auto& region : regions) {
    region->wait_receives(watch_);
    region->wait_sends(watch_);
  }
}

void Exchange::offer(const void* data, std::size_t bytes, int to) {
  std::byte announced{};
  const auto announcement = transport_.map(&announced, 1);
  announcement->send(to, tag_ + 1, 0, 1);
  if (bytes > 0) send(data, bytes, to);
  announcement->wait_sends(watch_);
}

int Exchange::receive_any(void* data, std::size_t bytes) {
  const int from = transport_.take_any(tag_ + 1, watch_);
  if (bytes > 0) receive(data, bytes, from);
  return from;
}

}  // namespace dtrain::p2p
