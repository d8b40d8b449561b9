// A group of one rank: every collective is a copy or nothing, done before the call returns.
#include <cstring>

#include "collectives/backends.h"
#include "collectives/p2p/check_span.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// A group of one moves nothing, so that memory of any device will do.
MemorySpan anywhere(MemorySpan span) {
  span.device = nullptr;
  return span;
}

class DoneWork final : public Work {
 public:
  void wait(const Deadline&) override {}
  bool done() noexcept override { return true; }
};

class SelfCommunicator final : public Communicator {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  std::string_view backend() const noexcept override { return "self"; }

  std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp, std::string_view label) override {
    p2p::check_span(anywhere(span), "all_reduce", label);
    return done("all_reduce", label);
  }
  std::unique_ptr<Work> reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp,
                                       std::string_view label) override {
    p2p::check_spans(anywhere(input), anywhere(output), "reduce_scatter", label);
    p2p::check_counts("reduce_scatter", label, "input", input.count, output.count);
    return copy(input, output, "reduce_scatter", label);
  }
  std::unique_ptr<Work> all_gather(MemorySpan input, MemorySpan output, std::string_view label) override {
    p2p::check_spans(anywhere(input), anywhere(output), "all_gather", label);
    p2p::check_counts("all_gather", label, "output", output.count, input.count);
    return copy(input, output, "all_gather", label);
  }
  std::unique_ptr<Work> broadcast(MemorySpan span, int root, std::string_view label) override {
    p2p::check_span(anywhere(span), "broadcast", label);
    p2p::check_rank("broadcast", label, "root", root, 1);
    return done("broadcast", label);
  }
  std::unique_ptr<Work> reduce(MemorySpan span, ReduceOp, int root, std::string_view label) override {
    p2p::check_span(anywhere(span), "reduce", label);
    p2p::check_rank("reduce", label, "root", root, 1);
    return done("reduce", label);
  }
  std::unique_ptr<Work> gather(MemorySpan input, MemorySpan output, int root,
                               std::string_view label) override {
    p2p::check_spans(anywhere(input), anywhere(output), "gather", label);
    p2p::check_rank("gather", label, "root", root, 1);
    p2p::check_counts("gather", label, "output", output.count, input.count);
    return copy(input, output, "gather", label);
  }
  std::unique_ptr<Work> scatter(MemorySpan input, MemorySpan output, int root,
                                std::string_view label) override {
    p2p::check_spans(anywhere(input), anywhere(output), "scatter", label);
    p2p::check_rank("scatter", label, "root", root, 1);
    p2p::check_counts("scatter", label, "input", input.count, output.count);
    return copy(input, output, "scatter", label);
  }
  std::unique_ptr<Work> all_to_all(MemorySpan input, std::span<const std::size_t> send_counts,
                                   MemorySpan output, std::span<const std::size_t> receive_counts,
                                   std::string_view label) override {
    p2p::check_spans(anywhere(input), anywhere(output), "all_to_all", label);
    p2p::check_all_to_all(input, send_counts, output, receive_counts, 0, 1, label);
    return copy(input, output, "all_to_all", label);
  }
  std::unique_ptr<Work> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 std::string_view label) override {
    for (const Message& message : sends)
      p2p::check_peer("exchange", label, "the peer of a send", message.peer, 0, 1);
    for (const Message& message : receives)
      p2p::check_peer("exchange", label, "the peer of a receive", message.peer, 0, 1);
    return done("exchange", label);
  }
  std::unique_ptr<Work> offer(MemorySpan, int to, std::string_view label) override {
    p2p::check_peer("offer", label, "to", to, 0, 1);
    return done("offer", label);
  }
  std::unique_ptr<Work> receive_any(MemorySpan, int&, std::string_view label) override {
    p2p::check_has_peers("receive_any", label, 1);
    return done("receive_any", label);
  }
  std::unique_ptr<Work> send(MemorySpan, int to, std::string_view label) override {
    p2p::check_peer("send", label, "to", to, 0, 1);
    return done("send", label);
  }
  std::unique_ptr<Work> receive(MemorySpan, int from, std::string_view label) override {
    p2p::check_peer("receive", label, "from", from, 0, 1);
    return done("receive", label);
  }
  std::unique_ptr<Work> barrier(std::string_view label) override { return done("barrier", label); }

  std::unique_ptr<Communicator> split(int, int, const Deadline&) override { return make_self_communicator(); }

  void abort(std::string_view reason) noexcept override {
    if (abort_reason_.empty()) abort_reason_ = reason.empty() ? "no reason given" : reason;
  }

 private:
  std::unique_ptr<Work> copy(const MemorySpan& input, const MemorySpan& output, std::string_view operation,
                             std::string_view label) {
    auto work = done(operation, label);
    if (input.count == 0) return work;
    if (input.device != nullptr && input.device->type() != DeviceType::cpu) {
      Stream& stream = input.stream != nullptr ? *input.stream : input.device->compute_stream();
      input.device->copy(output.data, input.data, input.bytes(), CopyKind::device_to_device, stream);
    } else {
      std::memmove(output.data, input.data, input.bytes());
    }
    return work;
  }

  std::unique_ptr<Work> done(std::string_view operation, std::string_view label) {
    ++sequence_;
    if (!abort_reason_.empty()) {
      throw PeerError(std::string(operation) + "('" + std::string(label) + "'): aborted: " + abort_reason_,
                      {0, "", std::string(operation), sequence_, std::string(label)});
    }
    return std::make_unique<DoneWork>();
  }

  std::uint64_t sequence_ = 0;
  std::string abort_reason_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

}  // namespace dtrain
