#include "parallel/server/key_value_communicator.h"

#include <cstring>
#include <utility>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// One thing said, when it is waited for.
class KeyValueWork final : public Work {
 public:
  KeyValueWork(KeyValueStore& store, std::int64_t number, bool puts, MemorySpan span)
      : store_(store), number_(number), puts_(puts), span_(span) {}

  void wait(const Deadline& deadline) override {
    if (std::exchange(done_, true)) return;
    const std::span<std::byte> own(static_cast<std::byte*>(span_.data), span_.bytes());
    if (puts_) return store_.put(number_, own, deadline);
    const std::vector<std::byte> got = store_.wait_get(number_, deadline);
    if (got.size() != own.size())
      throw PeerError(
          "rank 0 sent another length than this worker expects; start all workers "
          "with the same options and version",
          PeerFailure{0, "", "broadcast", 0, ""});
    if (!got.empty()) std::memcpy(own.data(), got.data(), got.size());
  }
  bool done() noexcept override { return done_; }

 private:
  KeyValueStore& store_;
  std::int64_t number_;
  bool puts_;
  MemorySpan span_;
  bool done_ = false;
};

class KeyValueCommunicator final : public Communicator {
 public:
  using Done = std::unique_ptr<Work>;
  using Label = std::string_view;

  KeyValueCommunicator(KeyValueStore& store, int rank, int size) : store_(store), rank_(rank), size_(size) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view backend() const noexcept override { return "parameter server"; }

  Done broadcast(MemorySpan span, int root, Label label) override {
    if (root != 0) refuse("broadcast from another rank than 0", label);
    return std::make_unique<KeyValueWork>(store_, next_++, rank_ == 0, span);
  }

  Done all_reduce(MemorySpan, ReduceOp, Label label) override { refuse("all_reduce", label); }
  Done reduce_scatter(MemorySpan, MemorySpan, ReduceOp, Label label) override {
    refuse("reduce_scatter", label);
  }
  Done all_gather(MemorySpan, MemorySpan, Label label) override { refuse("all_gather", label); }
  Done reduce(MemorySpan, ReduceOp, int, Label label) override { refuse("reduce", label); }
  Done gather(MemorySpan, MemorySpan, int, Label label) override { refuse("gather", label); }
  Done scatter(MemorySpan, MemorySpan, int, Label label) override { refuse("scatter", label); }
  Done all_to_all(MemorySpan, std::span<const std::size_t>, MemorySpan, std::span<const std::size_t>,
                  Label label) override {
    refuse("all_to_all", label);
  }
  Done send(MemorySpan, int, Label label) override { refuse("send", label); }
  Done receive(MemorySpan, int, Label label) override { refuse("receive", label); }
  Done exchange(std::span<const dtrain::Message>, std::span<const dtrain::Message>, Label label) override {
    refuse("exchange", label);
  }
  Done offer(MemorySpan, int, Label label) override { refuse("offer", label); }
  Done receive_any(MemorySpan, int&, Label label) override { refuse("receive_any", label); }
  Done barrier(Label label) override { refuse("barrier", label); }
  std::unique_ptr<Communicator> split(int, int, const Deadline&) override { refuse("split", ""); }
  void abort(std::string_view) noexcept override {}  // the servers see that this worker goes

 private:
  [[noreturn]] static void refuse(const char* what, Label label) {
    throw UsageError(std::string(what) + "('" + std::string(label) +
                     "'): expected nothing that waits for all workers, with asynchronous updates");
  }

  KeyValueStore& store_;
  int rank_, size_;
  std::int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_key_value_communicator(KeyValueStore& store, int rank, int size) {
  return std::make_unique<KeyValueCommunicator>(store, rank, size);
}

}  // namespace dtrain
