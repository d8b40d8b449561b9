// A communicator whose collectives finish when the test says so; it remembers what was called, and stands for
// a world whose other ranks contribute nothing.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/error.h"

namespace dtrain::test {

class FakeCommunicator final : public Communicator {
 public:
  explicit FakeCommunicator(int size) : size_(size) {}

  struct Started {
    std::string label;
    MemorySpan span;
    bool waited = false;
    bool late = false;  ///< waited for when the deadline had passed
  };
  std::vector<Started> started;
  bool fail_waits = false;

  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return size_; }
  std::string_view backend() const noexcept override { return "fake"; }
  std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp, std::string_view label) override {
    started.push_back({std::string(label), span});
    return std::make_unique<FakeWork>(*this, started.size() - 1);
  }
  std::unique_ptr<Work> reduce_scatter(MemorySpan, MemorySpan, ReduceOp, std::string_view) override {
    return refuse();
  }
  std::unique_ptr<Work> all_gather(MemorySpan, MemorySpan, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> broadcast(MemorySpan, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> reduce(MemorySpan, ReduceOp, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> gather(MemorySpan, MemorySpan, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> scatter(MemorySpan, MemorySpan, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> all_to_all(MemorySpan, std::span<const std::size_t>, MemorySpan,
                                   std::span<const std::size_t>, std::string_view) override {
    return refuse();
  }
  std::unique_ptr<Work> exchange(std::span<const Message>, std::span<const Message>,
                                 std::string_view) override {
    return refuse();
  }
  std::unique_ptr<Work> offer(MemorySpan, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> receive_any(MemorySpan, int&, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> send(MemorySpan, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> receive(MemorySpan, int, std::string_view) override { return refuse(); }
  std::unique_ptr<Work> barrier(std::string_view) override { return refuse(); }
  std::unique_ptr<Communicator> split(int, int, const Deadline&) override { return nullptr; }
  void abort(std::string_view) noexcept override {}

 private:
  class FakeWork final : public Work {
   public:
    FakeWork(FakeCommunicator& owner, std::size_t index) : owner_(owner), index_(index) {}
    void wait(const Deadline& deadline) override {
      if (owner_.fail_waits) throw PeerError("a peer is lost", {});
      owner_.started[index_].waited = true;
      owner_.started[index_].late = deadline.expired();
    }
    bool done() noexcept override { return owner_.started[index_].waited; }

   private:
    FakeCommunicator& owner_;
    std::size_t index_;
  };
  static std::unique_ptr<Work> refuse() { throw UsageError("the fake communicator only all-reduces"); }

  int size_;
};

}  // namespace dtrain::test
