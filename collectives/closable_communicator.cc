#include "collectives/closable_communicator.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"

namespace dtrain {

ClosableCommunicator::ClosableCommunicator(std::unique_ptr<Communicator> open)
    : open_(std::move(open)),
      rank_(open_->rank()),
      size_(open_->size()),
      backend_(open_->backend()),
      all_reduce_text_(open_->all_reduce_text()) {}

Communicator& ClosableCommunicator::open(std::string_view call, std::string_view label) const {
  if (open_) return *open_;
  throw UsageError(
      fmt::format("{}('{}'): expected a call before leave() on this rank, got one after "
                  "leave(), on rank {} of "
                  "{}; leave() comes after the last collective",
                  call, label, rank_, size_));
}

std::unique_ptr<Work> ClosableCommunicator::all_reduce(MemorySpan span, ReduceOp op, std::string_view label) {
  return open("all_reduce", label).all_reduce(span, op, label);
}

std::unique_ptr<Work> ClosableCommunicator::reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp op,
                                                           std::string_view label) {
  return open("reduce_scatter", label).reduce_scatter(input, output, op, label);
}

std::unique_ptr<Work> ClosableCommunicator::all_gather(MemorySpan input, MemorySpan output,
                                                       std::string_view label) {
  return open("all_gather", label).all_gather(input, output, label);
}

std::unique_ptr<Work> ClosableCommunicator::broadcast(MemorySpan span, int root, std::string_view label) {
  return open("broadcast", label).broadcast(span, root, label);
}

std::unique_ptr<Work> ClosableCommunicator::reduce(MemorySpan span, ReduceOp op, int root,
                                                   std::string_view label) {
  return open("reduce", label).reduce(span, op, root, label);
}

std::unique_ptr<Work> ClosableCommunicator::gather(MemorySpan input, MemorySpan output, int root,
                                                   std::string_view label) {
  return open("gather", label).gather(input, output, root, label);
}

std::unique_ptr<Work> ClosableCommunicator::scatter(MemorySpan input, MemorySpan output, int root,
                                                    std::string_view label) {
  return open("scatter", label).scatter(input, output, root, label);
}

std::unique_ptr<Work> ClosableCommunicator::all_to_all(MemorySpan input,
                                                       std::span<const std::size_t> send_counts,
                                                       MemorySpan output,
                                                       std::span<const std::size_t> receive_counts,
                                                       std::string_view label) {
  return open("all_to_all", label).all_to_all(input, send_counts, output, receive_counts, label);
}

std::unique_ptr<Work> ClosableCommunicator::send(MemorySpan span, int to, std::string_view label) {
  return open("send", label).send(span, to, label);
}

std::unique_ptr<Work> ClosableCommunicator::receive(MemorySpan span, int from, std::string_view label) {
  return open("receive", label).receive(span, from, label);
}

std::unique_ptr<Work> ClosableCommunicator::exchange(std::span<const Message> sends,
                                                     std::span<const Message> receives,
                                                     std::string_view label) {
  return open("exchange", label).exchange(sends, receives, label);
}

std::unique_ptr<Work> ClosableCommunicator::offer(MemorySpan span, int to, std::string_view label) {
  return open("offer", label).offer(span, to, label);
}

std::unique_ptr<Work> ClosableCommunicator::receive_any(MemorySpan span, int& from, std::string_view label) {
  return open("receive_any", label).receive_any(span, from, label);
}

std::unique_ptr<Work> ClosableCommunicator::barrier(std::string_view label) {
  return open("barrier", label).barrier(label);
}

std::unique_ptr<Communicator> ClosableCommunicator::split(int color, int key, const Deadline& deadline) {
  return open("split", "").split(color, key, deadline);
}

void ClosableCommunicator::set_call_start(CallStart start) noexcept {
  if (open_) open_->set_call_start(start);
}

void ClosableCommunicator::limit_calls(Duration limit) noexcept {
  if (open_) open_->limit_calls(limit);
}

void ClosableCommunicator::abort(std::string_view reason) noexcept {
  if (open_) open_->abort(reason);
}

}  // namespace dtrain
