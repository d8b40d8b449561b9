// A communicator that takes leave of the other ranks while the program still refers to it: who it was stays
// known, and calls say that it has left.
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"

namespace dtrain {

/// Hands every call to another communicator, until close().
class ClosableCommunicator final : public Communicator {
 public:
  explicit ClosableCommunicator(std::unique_ptr<Communicator> open);

  /// Destroys the other one, which takes leave of its ranks. Afterwards rank(), size(), backend() and
  /// all_reduce_text() are what they were; what concerns other ranks throws UsageError.
  void close() noexcept { open_.reset(); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view backend() const noexcept override { return backend_; }
  std::string all_reduce_text() const override { return all_reduce_text_; }

  std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp op, std::string_view label) override;
  std::unique_ptr<Work> reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp op,
                                       std::string_view label) override;
  std::unique_ptr<Work> all_gather(MemorySpan input, MemorySpan output, std::string_view label) override;
  std::unique_ptr<Work> broadcast(MemorySpan span, int root, std::string_view label) override;
  std::unique_ptr<Work> reduce(MemorySpan span, ReduceOp op, int root, std::string_view label) override;
  std::unique_ptr<Work> gather(MemorySpan input, MemorySpan output, int root,
                               std::string_view label) override;
  std::unique_ptr<Work> scatter(MemorySpan input, MemorySpan output, int root,
                                std::string_view label) override;
  std::unique_ptr<Work> all_to_all(MemorySpan input, std::span<const std::size_t> send_counts,
                                   MemorySpan output, std::span<const std::size_t> receive_counts,
                                   std::string_view label) override;
  std::unique_ptr<Work> send(MemorySpan span, int to, std::string_view label) override;
  std::unique_ptr<Work> receive(MemorySpan span, int from, std::string_view label) override;
  std::unique_ptr<Work> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 std::string_view label) override;
  std::unique_ptr<Work> offer(MemorySpan span, int to, std::string_view label) override;
  std::unique_ptr<Work> receive_any(MemorySpan span, int& from, std::string_view label) override;
  std::unique_ptr<Work> barrier(std::string_view label) override;
  std::unique_ptr<Communicator> split(int color, int key, const Deadline& deadline) override;
  void set_call_start(CallStart start) noexcept override;
  void limit_calls(Duration limit) noexcept override;
  void abort(std::string_view reason) noexcept override;

 private:
  Communicator& open(std::string_view call, std::string_view label) const;

  std::unique_ptr<Communicator> open_;
  int rank_, size_;
  std::string backend_, all_reduce_text_;
};

}  // namespace dtrain
