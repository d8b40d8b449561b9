#include "collectives/p2p/algorithms.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/p2p/algorithm/ring.h"
#include "collectives/p2p/algorithm/tree.h"
#include "collectives/p2p/algorithm/two_level.h"

namespace dtrain::p2p {
namespace {

// A broadcast of more than this goes out in parts that the ranks then pass on to each other.
constexpr std::size_t kScatterBroadcastBytes = 256 * 1024;

}  // namespace

std::size_t Exchange::segment_elems(std::size_t width) const noexcept {
  const std::size_t share = kMostScratchBytes / (2 * static_cast<std::size_t>(size_));
  return std::max<std::size_t>(1, std::min(context_.segment_bytes, share) / width);
}

// `others` has what the other ranks sent.
void Exchange::reduce_own(const std::byte* own, const ReceiveBuffers& others, std::byte* out,
                          std::size_t count, DType dtype, ReduceOp op) {
  for (int r = 0; r < size_; ++r)
    operands_[static_cast<std::size_t>(r)] = {r == rank_ ? own : others.message(r)};
  p2p::reduce(dtype, op, out, operands_, count);
}

// Everything to everyone, by segments, the next one on its way while one is reduced.
void Exchange::exchange_all(void* data, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t width = size_of(dtype), segment = std::min(segment_elems(width), count);
  const std::size_t segments = (count + segment - 1) / segment, stride = segment * width;
  std::byte* const others = scratch(std::min<std::size_t>(segments, 2) * stride * world());
  std::array<std::unique_ptr<ReceiveBuffers>, 2> incoming;
  std::array<std::unique_ptr<UnboundBuffer>, 2> outgoing;
  const auto length_of = [&](std::size_t index) { return std::min(segment, count - index * segment); };
  const auto start_segment = [&](std::size_t index) {
    auto& in = incoming[index % 2];
    auto& out = outgoing[index % 2];
    if (!in) in = transport_.receive_buffers(others + index % 2 * stride * world(), stride);
    if (!out) out = transport_.make_buffer(data, count * width);
    for_each_peer([&](int peer) { in->expect(peer, tag_, length_of(index) * width); });
    for_each_peer([&](int peer) { out->send(peer, tag_, index * stride, length_of(index) * width); });
  };
  start_segment(0);
  for (std::size_t index = 0; index < segments; ++index) {
    if (index + 1 < segments) start_segment(index + 1);
    incoming[index % 2]->wait(watchdog_);
    outgoing[index % 2]->wait_sends(watchdog_);
    std::byte* const own = at(data, index * stride);
    reduce_own(own, *incoming[index % 2], own, length_of(index), dtype, op);
    incoming[index % 2]->release();
  }
}

void Exchange::all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op) {
  switch (plan_ == nullptr ? Route::direct : plan_->all_reduce_route(count * size_of(dtype))) {
    case Route::direct:
      return all_reduce_directly(data, count, dtype, op);
    case Route::ring:
      return ring_all_reduce(context_, data, count, dtype, op);
    case Route::tree:
      return tree_all_reduce(context_, data, count, dtype, op);
    case Route::two_levels:
      return TwoLevel(context_, plan_->topology()).all_reduce(data, count, dtype, op);
    case Route::first_ranks:
      return TwoLevel(context_, plan_->topology()).all_reduce_small(data, count, dtype, op);
  }
}

void Exchange::all_reduce_directly(void* data, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t width = size_of(dtype), world = this->world();
  if (direct_in_one_step(size_, count * width) || count < world) return exchange_all(data, count, dtype, op);

  // At least two segments a part, so that one travels while the other is reduced.
  const std::size_t segment = std::min(segment_elems(width), (count / world + 1) / 2 + 1);
  const auto segment_of = [&](int rank, std::size_t index) {
    const Part part = part_of(rank, count);
    const std::size_t begin = std::min(part.end, part.begin + index * segment);
    return Part{begin, std::min(part.end, begin + segment)};
  };
  const std::size_t segments = ((count + world - 1) / world + segment - 1) / segment;
  const std::size_t stride = segment * width, half = stride * world;
  std::byte* others = scratch(2 * half);
  const std::array incoming = {transport_.receive_buffers(others, stride),
                               transport_.receive_buffers(others + half, stride)};
  const auto raw = transport_.make_buffer(data, count * width);
  const auto reduced = transport_.make_buffer(data, count * width);

  const auto start_segment = [&](std::size_t index) {
    const Part own = segment_of(rank_, index);
    for_each_peer([&](int peer) {
      if (own.end > own.begin) incoming[index % 2]->expect(peer, tag_, (own.end - own.begin) * width);
    });
    for_each_peer([&](int peer) {
      const Part theirs = segment_of(peer, index);
      if (theirs.end > theirs.begin) {
        raw->send(peer, tag_, theirs.begin * width, (theirs.end - theirs.begin) * width);
      }
    });
  };
  // A reduced segment overwrites the raw one only after its owner has read it from here, so the two never
  // meet.
  const auto pass_on_segment = [&](std::size_t index) {
    const Part own = segment_of(rank_, index);
    for_each_peer([&](int peer) {
      const Part theirs = segment_of(peer, index);
      if (theirs.end > theirs.begin) {
        reduced->receive(peer, tag_ + 1, theirs.begin * width, (theirs.end - theirs.begin) * width);
      }
    });
    if (own.end == own.begin) return;
    for_each_peer(
        [&](int peer) { reduced->send(peer, tag_ + 1, own.begin * width, (own.end - own.begin) * width); });
  };

  start_segment(0);
  for (std::size_t index = 0; index < segments; ++index) {
    if (index + 1 < segments) start_segment(index + 1);
    incoming[index % 2]->wait(watchdog_);
    const Part own = segment_of(rank_, index);
    std::byte* target = at(data, own.begin * width);
    if (own.end > own.begin) {
      reduce_own(target, *incoming[index % 2], target, own.end - own.begin, dtype, op);
      incoming[index % 2]->release();
    }
    pass_on_segment(index);
  }
  raw->wait_sends(watchdog_);
  reduced->wait_receives(watchdog_);
  reduced->wait_sends(watchdog_);
}

void Exchange::reduce_scatter(const void* input, void* output, std::size_t part, DType dtype, ReduceOp op) {
  if (has_levels())
    return TwoLevel(context_, plan_->topology()).reduce_scatter(input, output, part, dtype, op);
  const std::size_t width = size_of(dtype), world = static_cast<std::size_t>(size_);
  const std::size_t segment = std::min(segment_elems(width), part);
  const std::size_t segments = (part + segment - 1) / segment;
  const std::size_t stride = segment * width, half = stride * world;
  std::byte* others = scratch(2 * half);
  const std::array incoming = {transport_.receive_buffers(others, stride),
                               transport_.receive_buffers(others + half, stride)};
  const auto outgoing = transport_.make_buffer(for_sending(input), part * width * world);
  const auto length_of = [&](std::size_t index) { return std::min(segment, part - index * segment); };

  const auto start_segment = [&](std::size_t index) {
    const std::size_t bytes = length_of(index) * width;
    for_each_peer([&](int peer) { incoming[index % 2]->expect(peer, tag_, bytes); });
    for_each_peer([&](int peer) {
      outgoing->send(peer, tag_, (static_cast<std::size_t>(peer) * part + index * segment) * width, bytes);
    });
  };
  start_segment(0);
  for (std::size_t index = 0; index < segments; ++index) {
    if (index + 1 < segments) start_segment(index + 1);
    incoming[index % 2]->wait(watchdog_);
    const std::size_t own = (static_cast<std::size_t>(rank_) * part + index * segment) * width;
    reduce_own(static_cast<const std::byte*>(input) + own, *incoming[index % 2], at(output, index * stride),
               length_of(index), dtype, op);
    incoming[index % 2]->release();
  }
  outgoing->wait_sends(watchdog_);
}

void Exchange::all_gather(const void* input, void* output, std::size_t bytes) {
  const std::size_t world = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_) * bytes;
  if (at(output, own) != input) std::memmove(at(output, own), input, bytes);
  if (has_levels()) return TwoLevel(context_, plan_->topology()).all_gather(output, bytes);
  const auto incoming = transport_.make_buffer(output, bytes * world);
  const auto outgoing = transport_.make_buffer(at(output, own), bytes);
  for_each_peer(
      [&](int peer) { incoming->receive(peer, tag_, static_cast<std::size_t>(peer) * bytes, bytes); });
  for_each_peer([&](int peer) { outgoing->send(peer, tag_, 0, bytes); });
  incoming->wait_receives(watchdog_);
  outgoing->wait_sends(watchdog_);
}

void Exchange::broadcast(void* data, std::size_t bytes, int root) {
  if (has_levels()) {
    TwoLevel(context_, plan_->topology()).broadcast(data, bytes, root);
    return barrier(1);
  }
  const auto buffer = transport_.make_buffer(data, bytes);
  const bool whole = size_ == 2 || bytes <= kScatterBroadcastBytes || bytes < static_cast<std::size_t>(size_);
  const auto bytes_of = [&](int rank) { return whole ? Part{0, bytes} : part_of(rank, bytes); };
  if (rank_ == root) {
    for_each_peer([&](int peer) {
      buffer->send(peer, tag_, bytes_of(peer).begin, bytes_of(peer).end - bytes_of(peer).begin);
    });
  } else {
    const Part own = bytes_of(rank_);
    buffer->receive(root, tag_, own.begin, own.end - own.begin);
    buffer->wait_receives(watchdog_);
  }
  if (!whole) {
    // Everyone passes its part on; the root keeps no one waiting for its own part.
    const Part own = bytes_of(rank_);
    for_each_peer([&](int peer) {
      if (rank_ != root) {
        const Part theirs = bytes_of(peer);
        buffer->receive(peer, tag_ + 1, theirs.begin, theirs.end - theirs.begin);
      }
    });
    for_each_peer([&](int peer) {
      if (peer != root) buffer->send(peer, tag_ + 1, own.begin, own.end - own.begin);
    });
    buffer->wait_receives(watchdog_);
  }
  buffer->wait_sends(watchdog_);
  // The root hears from nobody, and others only from it: without this they could pass a call that some did
  // not make.
  barrier(2);
}

void Exchange::barrier(std::uint64_t phase) {
  std::array<std::byte, 2> token{};
  const auto buffer = transport_.make_buffer(token.data(), token.size());
  for (int distance = 1; distance < size_; distance *= 2) {
    buffer->receive((rank_ + size_ - distance) % size_, tag_ + phase, 1, 1);
    buffer->send((rank_ + distance) % size_, tag_ + phase, 0, 1);
    buffer->wait_receives(watchdog_);
    buffer->wait_sends(watchdog_);
  }
}

}  // namespace dtrain::p2p
