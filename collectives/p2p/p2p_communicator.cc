#include "collectives/p2p/p2p_communicator.h"

#include "collectives/abort_tree.h"
#include "collectives/p2p/check_span.h"
#include "collectives/p2p/group.h"
#include "collectives/p2p/subgroup.h"

namespace dtrain::p2p {
namespace {

class GroupWork final : public Work {
 public:
  GroupWork(std::shared_ptr<Group> group, std::shared_ptr<QueuedCall> queued)
      : group_(std::move(group)), queued_(std::move(queued)) {}
  void wait(const Deadline& deadline) override { group_->wait(*queued_, deadline); }
  bool done() noexcept override { return group_->done(*queued_); }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<QueuedCall> queued_;
};

class P2pCommunicator final : public Communicator {
 public:
  P2pCommunicator(Endpoints endpoints, std::string name, Duration timeout, Log& log, SpanRecorder* spans)
      : log_(log),
        name_(name),
        group_(std::make_shared<Group>(std::move(endpoints), std::move(name), timeout, log, spans)) {}
  ~P2pCommunicator() override {
    abort_tree_->close();
    group_->leave();
  }

  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  std::string_view backend() const noexcept override { return group_->backend(); }
  std::string all_reduce_text() const override { return group_->all_reduce_text(); }

  std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp op, std::string_view label) override {
    check_span(span, "all_reduce", label);
    return start({.operation = Operation::all_reduce, .reduce = op, .dtype = span.dtype, .count = span.count},
                 span, span, label);
  }

  std::unique_ptr<Work> reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp op,
                                       std::string_view label) override {
    check_spans(input, output, "reduce_scatter", label);
    check_counts("reduce_scatter", label, "input", input.count,
                 output.count * static_cast<std::size_t>(size()));
    return start(
        {.operation = Operation::reduce_scatter, .reduce = op, .dtype = output.dtype, .count = output.count},
        input, output, label);
  }

  std::unique_ptr<Work> all_gather(MemorySpan input, MemorySpan output, std::string_view label) override {
    check_spans(input, output, "all_gather", label);
    check_counts("all_gather", label, "output", output.count, input.count * static_cast<std::size_t>(size()));
    return start({.operation = Operation::all_gather, .dtype = input.dtype, .count = input.count}, input,
                 output, label);
  }

  std::unique_ptr<Work> broadcast(MemorySpan span, int root, std::string_view label) override {
    check_span(span, "broadcast", label);
    check_rank("broadcast", label, "root", root, size());
    return start({.operation = Operation::broadcast, .dtype = span.dtype, .root = root, .count = span.count},
                 span, span, label);
  }

  std::unique_ptr<Work> reduce(MemorySpan span, ReduceOp op, int root, std::string_view label) override {
    check_span(span, "reduce", label);
    check_rank("reduce", label, "root", root, size());
    return start({.operation = Operation::reduce,
                  .reduce = op,
                  .dtype = span.dtype,
                  .root = root,
                  .count = span.count},
                 span, span, label);
  }

  std::unique_ptr<Work> gather(MemorySpan input, MemorySpan output, int root,
                               std::string_view label) override {
    check_rank("gather", label, "root", root, size());
    check_span(input, "gather", label);
    if (rank() == root) {
      check_spans(input, output, "gather", label);
      check_counts("gather", label, "output", output.count, input.count * static_cast<std::size_t>(size()));
    }
    return start({.operation = Operation::gather, .dtype = input.dtype, .root = root, .count = input.count},
                 input, output, label);
  }

  std::unique_ptr<Work> scatter(MemorySpan input, MemorySpan output, int root,
                                std::string_view label) override {
    check_rank("scatter", label, "root", root, size());
    check_span(output, "scatter", label);
    if (rank() == root) {
      check_spans(input, output, "scatter", label);
      check_counts("scatter", label, "input", input.count, output.count * static_cast<std::size_t>(size()));
    }
    return start(
        {.operation = Operation::scatter, .dtype = output.dtype, .root = root, .count = output.count}, input,
        output, label);
  }

  std::unique_ptr<Work> all_to_all(MemorySpan input, std::span<const std::size_t> send_counts,
                                   MemorySpan output, std::span<const std::size_t> receive_counts,
                                   std::string_view label) override {
    check_spans(input, output, "all_to_all", label);
    check_all_to_all(input, send_counts, output, receive_counts, rank(), size(), label);
    return start({.operation = Operation::all_to_all,
                  .dtype = input.dtype,
                  .sends = {send_counts.begin(), send_counts.end()},
                  .receives = {receive_counts.begin(), receive_counts.end()}},
                 input, output, label);
  }

  std::unique_ptr<Work> send(MemorySpan span, int to, std::string_view label) override {
    check_span(span, "send", label);
    check_peer("send", label, "to", to, rank(), size());
    return start({.operation = Operation::send, .dtype = span.dtype, .root = to, .count = span.count}, span,
                 span, label);
  }

  std::unique_ptr<Work> receive(MemorySpan span, int from, std::string_view label) override {
    check_span(span, "receive", label);
    check_peer("receive", label, "from", from, rank(), size());
    return start({.operation = Operation::receive, .dtype = span.dtype, .root = from, .count = span.count},
                 span, span, label);
  }

  std::unique_ptr<Work> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 std::string_view label) override {
    QueuedCall queued;
    queued.call.operation = Operation::exchange;
    queued.call.label = label;
    const auto add = [&](const Message& message, Operation operation, std::string_view which) {
      check_span(message.span, "exchange", label);
      check_peer("exchange", label, which, message.peer, rank(), size());
      queued.call.messages.push_back({.operation = operation,
                                      .dtype = message.span.dtype,
                                      .root = message.peer,
                                      .count = message.span.count,
                                      .label = std::string(label)});
      queued.spans.push_back(message.span);
    };
    for (const Message& message : receives) add(message, Operation::receive, "the peer of a receive");
    for (const Message& message : sends) add(message, Operation::send, "the peer of a send");
    return start(std::move(queued));
  }

  std::unique_ptr<Work> offer(MemorySpan span, int to, std::string_view label) override {
    check_span(span, "offer", label);
    check_peer("offer", label, "to", to, rank(), size());
    return start({.operation = Operation::offer, .dtype = span.dtype, .root = to, .count = span.count}, span,
                 span, label);
  }

  std::unique_ptr<Work> receive_any(MemorySpan span, int& from, std::string_view label) override {
    check_span(span, "receive_any", label);
    check_has_peers("receive_any", label, size());
    QueuedCall queued;
    queued.call = {.operation = Operation::receive_any, .dtype = span.dtype, .count = span.count};
    queued.call.label = label;
    queued.output = span;
    queued.source = &from;
    return start(std::move(queued));
  }

  std::unique_ptr<Work> barrier(std::string_view label) override {
    return start({.operation = Operation::barrier}, {}, {}, label);
  }

  std::unique_ptr<Communicator> split(int color, int key, const Deadline& deadline) override {
    const Subgroup part = agree_on_subgroup(*this, name_, ++splits_, color, key, deadline);
    auto made = std::make_unique<P2pCommunicator>(group_->split(part.members, part.name, deadline), part.name,
                                                  group_->timeout(), log_, group_->spans());
    abort_tree_->add(made->abort_tree_);
    return made;
  }

  void set_call_start(CallStart start) noexcept override { group_->set_call_start(start); }
  void abort(std::string_view reason) noexcept override { abort_tree_->abort(reason); }

 private:
  std::unique_ptr<Work> start(Call call, MemorySpan input, MemorySpan output, std::string_view label) {
    call.label = label;
    return start({.call = std::move(call), .input = input, .output = output});
  }
  std::unique_ptr<Work> start(QueuedCall queued) {
    return std::make_unique<GroupWork>(group_, group_->submit(std::move(queued)));
  }

  Log& log_;
  const std::string name_;
  int splits_ = 0;
  std::shared_ptr<Group> group_;
  const std::shared_ptr<AbortTree> abort_tree_ =
      std::make_shared<AbortTree>([this](std::string_view reason) { group_->abort(reason); });
};

}  // namespace

std::unique_ptr<Communicator> make_p2p_communicator(Endpoints endpoints, std::string name, Duration timeout,
                                                    Log& log, SpanRecorder* spans) {
  return std::make_unique<P2pCommunicator>(std::move(endpoints), std::move(name), timeout, log, spans);
}

}  // namespace dtrain::p2p
