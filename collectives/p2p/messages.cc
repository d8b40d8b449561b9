// Messages between pairs of ranks: many at once, to everyone, and from anyone.
#include <cstring>
#include <numeric>

#include "collectives/p2p/algorithms.h"
#include "collectives/p2p/call.h"

namespace dtrain::p2p {
namespace {

// Where each rank's part begins, and behind them the end; in elements.
std::vector<std::size_t> begins_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> begins(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
  return begins;
}

}  // namespace

// The count is part of the tag: where two ranks disagree nothing moves, and their records tell why. The
// barrier keeps a rank that expects nothing from leaving before that.
void Exchange::all_to_all(const void* input, std::span<const std::size_t> sends, void* output,
                          std::span<const std::size_t> receives, std::size_t width) {
  const std::vector<std::size_t> from = begins_of(sends), to = begins_of(receives);
  const auto own = static_cast<std::size_t>(rank_);
  if (sends[own] > 0) {
    std::memcpy(static_cast<std::byte*>(output) + to[own] * width,
                static_cast<const std::byte*>(input) + from[own] * width, sends[own] * width);
  }
  const auto incoming = transport_.make_buffer(output, to.back() * width);
  const auto outgoing = transport_.make_buffer(for_sending(input), from.back() * width);
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
  incoming->wait_receives(watchdog_);
  outgoing->wait_sends(watchdog_);
  barrier(2);
}

void Exchange::send(const void* data, std::size_t bytes, int to) {
  const auto buffer = transport_.make_buffer(for_sending(data), bytes);
  buffer->send(to, tag_, 0, bytes);
  buffer->wait_sends(watchdog_);
}

void Exchange::receive(void* data, std::size_t bytes, int from) {
  const auto buffer = transport_.make_buffer(data, bytes);
  buffer->receive(from, tag_, 0, bytes);
  buffer->wait_receives(watchdog_);
}

void Exchange::exchange(std::span<const P2pOp> operations) {
  std::vector<std::unique_ptr<UnboundBuffer>> buffers;
  for (const bool sends : {false, true}) {
    for (const P2pOp& operation : operations) {
      if (operation.sends != sends || operation.bytes == 0) continue;
      UnboundBuffer& buffer = *buffers.emplace_back(transport_.make_buffer(operation.data, operation.bytes));
      sends ? buffer.send(operation.peer, operation.tag, 0, operation.bytes)
            : buffer.receive(operation.peer, operation.tag, 0, operation.bytes);
    }
  }
  for (const auto& buffer : buffers) {
    buffer->wait_receives(watchdog_);
    buffer->wait_sends(watchdog_);
  }
}

void Exchange::offer(const void* data, std::size_t bytes, int to) {
  std::byte announced{};
  const auto announcement = transport_.make_buffer(&announced, 1);
  announcement->send(to, tag_ + 1, 0, 1);
  if (bytes > 0) send(data, bytes, to);
  announcement->wait_sends(watchdog_);
}

int Exchange::receive_any(void* data, std::size_t bytes) {
  const int from = transport_.take_any(tag_ + 1, watchdog_);
  if (bytes > 0) receive(data, bytes, from);
  return from;
}

}  // namespace dtrain::p2p
