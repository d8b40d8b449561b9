// Collectives with a root: broadcast is in algorithms.cc beside what it shares.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/p2p/algorithm/two_level.h"
#include "collectives/p2p/algorithms.h"

namespace dtrain::p2p {
namespace {

// Up to this many bytes a rank, everything goes to the root at once; above, ranks reduce a part each, so that
// the root has neither all of the work nor all of the bytes.
constexpr std::size_t kDirectBytes = 64 * 1024;

}  // namespace

// As all_reduce, but reduced segments go to the root alone, and elsewhere they are put beside the data.
void Exchange::reduce(void* data, std::size_t count, DType dtype, ReduceOp op, int root) {
  if (has_levels()) {
    TwoLevel(context_, plan_->topology()).reduce(data, count, dtype, op, root);
    return barrier(3);
  }
  const std::size_t width = size_of(dtype), world = this->world();
  const bool direct = count * width <= kDirectBytes || count < world;
  const auto owned_by = [&](int rank) {
    return direct ? Part{0, rank == root ? count : 0} : part_of(rank, count);
  };
  const std::size_t longest = direct ? count : (count + world - 1) / world;
  const std::size_t segment = std::min(segment_elems(width), (longest + 1) / 2 + 1);
  const auto segment_of = [&](int rank, std::size_t index) {
    const Part part = owned_by(rank);
    const std::size_t begin = std::min(part.end, part.begin + index * segment);
    return Part{begin, std::min(part.end, begin + segment)};
  };
  const std::size_t segments = (longest + segment - 1) / segment;
  const std::size_t stride = segment * width, half = stride * world;
  std::byte* const others = scratch(2 * half + 2 * stride);
  std::byte* const results = others + 2 * half;
  const std::array incoming = {transport_.receive_buffers(others, stride),
                               transport_.receive_buffers(others + half, stride)};
  const std::array outgoing = {transport_.make_buffer(results, stride),
                               transport_.make_buffer(results + stride, stride)};
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
      // It overwrites the raw segment only after its owner has read that from here.
      if (rank_ == root && theirs.end > theirs.begin) {
        reduced->receive(peer, tag_ + 1, theirs.begin * width, (theirs.end - theirs.begin) * width);
      }
    });
  };
  start_segment(0);
  for (std::size_t index = 0; index < segments; ++index) {
    if (index + 1 < segments) start_segment(index + 1);
    incoming[index % 2]->wait(watchdog_);
    const Part own = segment_of(rank_, index);
    if (own.end == own.begin) continue;
    outgoing[index % 2]->wait_sends(watchdog_);
    std::byte* const mine = at(data, own.begin * width);
    std::byte* const result = rank_ == root ? mine : results + index % 2 * stride;
    reduce_own(mine, *incoming[index % 2], result, own.end - own.begin, dtype, op);
    incoming[index % 2]->release();
    if (rank_ != root) outgoing[index % 2]->send(root, tag_ + 1, 0, (own.end - own.begin) * width);
  }
  raw->wait_sends(watchdog_);
  for (const auto& buffer : outgoing) buffer->wait_sends(watchdog_);
  reduced->wait_receives(watchdog_);
  barrier(2);
}

void Exchange::gather(const void* input, void* output, std::size_t bytes, int root) {
  if (rank_ != root) {
    send(input, bytes, root);
    return barrier(2);
  }
  std::byte* const own = at(output, static_cast<std::size_t>(rank_) * bytes);
  if (own != input) std::memmove(own, input, bytes);
  const auto buffer = transport_.make_buffer(output, bytes * world());
  for_each_peer(
      [&](int peer) { buffer->receive(peer, tag_, static_cast<std::size_t>(peer) * bytes, bytes); });
  buffer->wait_receives(watchdog_);
  barrier(2);
}

void Exchange::scatter(const void* input, void* output, std::size_t bytes, int root) {
  if (rank_ != root) {
    receive(output, bytes, root);
    return barrier(2);
  }
  const auto buffer = transport_.make_buffer(for_sending(input), bytes * world());
  for_each_peer([&](int peer) { buffer->send(peer, tag_, static_cast<std::size_t>(peer) * bytes, bytes); });
  buffer->wait_sends(watchdog_);
  std::memmove(output, static_cast<const std::byte*>(input) + static_cast<std::size_t>(rank_) * bytes, bytes);
  barrier(2);
}

}  // namespace dtrain::p2p
