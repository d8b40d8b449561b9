#include "emulation/nccl/transfer.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "emulation/nccl/reduce.h"

namespace emulation {
namespace {

/// Collectives go in rounds of one chunk: all publish, all read, and a chunk is written again when all have
/// read it.
class Collective {
 public:
  Collective(Link& link, const Request& request)
      : link_(&link), segment_(link.segment.get()), request_(request) {
    element_ = size_of(request.type);
    piece_ = Segment::kChunkBytes / element_;
    const std::size_t pieces = (request.count + piece_ - 1) / piece_;
    rounds_ = request.kind == Transfer::reduce_scatter ? pieces * ranks() : pieces;
  }

  Progress go_on() {
    bool moved = false;
    while (done_ < rounds_) {
      RankSlot& self = segment_->rank(link_->rank);
      const std::uint64_t round = self.consumed.load(std::memory_order_relaxed);
      if (self.published.load(std::memory_order_relaxed) == round) {
        if (!all([&](const RankSlot& slot) {
              return slot.consumed.load(std::memory_order_acquire) + 1 >= round;
            }))
          break;
        publish(segment_->chunk(link_->rank, round));
        self.published.store(round + 1, std::memory_order_release);
      }
      if (!all([&](const RankSlot& slot) { return slot.published.load(std::memory_order_acquire) > round; }))
        break;
      consume(round);
      self.consumed.store(round + 1, std::memory_order_release);
      ++done_;
      moved = true;
    }
    if (done_ == rounds_) return Progress::done;
    return moved ? Progress::moved : Progress::stalled;
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(segment_->ranks()); }
  template <class Test>
  bool all(Test test) const {
    for (int rank = 0; rank < segment_->ranks(); ++rank) {
      if (!test(segment_->rank(rank))) return false;
    }
    return true;
  }
  /// Of this round: whose part (reduce_scatter), where in it, how many elements.
  std::size_t part() const { return request_.kind == Transfer::reduce_scatter ? done_ % ranks() : 0; }
  std::size_t begin() const {
    return (request_.kind == Transfer::reduce_scatter ? done_ / ranks() : done_) * piece_;
  }
  std::size_t size() const { return std::min(piece_, request_.count - begin()); }

  void publish(std::byte* chunk) const {
    if (request_.kind == Transfer::broadcast && link_->rank != request_.peer) return;
    const std::size_t at = part() * request_.count + begin();
    std::memcpy(chunk, static_cast<const std::byte*>(request_.in) + at * element_, size() * element_);
  }

  void consume(std::uint64_t round) const {
    auto* const out = static_cast<std::byte*>(request_.out);
    const std::size_t bytes = size() * element_;
    switch (request_.kind) {
      case Transfer::broadcast:
        std::memcpy(out + begin() * element_, segment_->chunk(request_.peer, round), bytes);
        return;
      case Transfer::all_gather:
        for (int rank = 0; rank < segment_->ranks(); ++rank) {
          const std::size_t at = static_cast<std::size_t>(rank) * request_.count + begin();
          std::memcpy(out + at * element_, segment_->chunk(rank, round), bytes);
        }
        return;
      case Transfer::reduce:
        if (link_->rank == request_.peer) add_up(out + begin() * element_, round);
        return;
      case Transfer::reduce_scatter:
        if (part() == static_cast<std::size_t>(link_->rank)) add_up(out + begin() * element_, round);
        return;
      default:
        add_up(out + begin() * element_, round);
    }
  }

  // By rank, so that every rank has the same bits.
  void add_up(std::byte* out, std::uint64_t round) const {
    std::memcpy(out, segment_->chunk(0, round), size() * element_);
    for (int rank = 1; rank < segment_->ranks(); ++rank) {
      reduce(request_.type, request_.op, out, segment_->chunk(rank, round), size());
    }
    if (request_.op == ncclAvg) divide(request_.type, out, size(), segment_->ranks());
  }

  Link* link_;
  Segment* segment_;
  Request request_;
  std::size_t element_ = 0, piece_ = 0, rounds_ = 0, done_ = 0;
};

class Message {
 public:
  Message(Link& link, const Request& request)
      : link_(&link), segment_(link.segment.get()), request_(request) {
    bytes_ = request.count * size_of(request.type);
  }

  /// Messages of one way and peer pass one after the other.
  std::pair<Transfer, int> way() const { return {request_.kind, request_.peer}; }

  Progress go_on() {
    const bool sends = request_.kind == Transfer::send;
    Mailbox& box =
        sends ? segment_->mailbox(link_->rank, request_.peer) : segment_->mailbox(request_.peer, link_->rank);
    bool moved = false;
    while (at_ < bytes_) {
      const std::size_t size = std::min(Segment::kMessageBytes, bytes_ - at_);
      const std::uint64_t sent = box.sent.load(std::memory_order_acquire);
      const std::uint64_t taken = box.taken.load(std::memory_order_acquire);
      if (sends ? sent - taken == 2 : sent == taken) return moved ? Progress::moved : Progress::stalled;
      if (sends) {
        std::memcpy(segment_->message(link_->rank, request_.peer, sent),
                    static_cast<const std::byte*>(request_.in) + at_, size);
        box.sent.store(sent + 1, std::memory_order_release);
      } else {
        std::memcpy(static_cast<std::byte*>(request_.out) + at_,
                    segment_->message(request_.peer, link_->rank, taken), size);
        box.taken.store(taken + 1, std::memory_order_release);
      }
      at_ += size;
      moved = true;
    }
    return Progress::done;
  }

 private:
  Link* link_;
  Segment* segment_;
  Request request_;
  std::size_t bytes_ = 0, at_ = 0;
};

bool is_message(const Request& request) {
  return request.kind == Transfer::send || request.kind == Transfer::receive;
}

class Run {
 public:
  Run(std::shared_ptr<Link> link, const std::vector<Request>& requests) : link_(std::move(link)) {
    for (const Request& request : requests) {
      if (request.count == 0) continue;
      if (is_message(request)) {
        messages_.emplace_back(*link_, request);
      } else {
        collectives_.emplace_back(*link_, request);
      }
    }
    std::reverse(collectives_.begin(), collectives_.end());
  }

  Progress go_on() {
    if (link_->aborted) return end();
    bool moved = false;
    while (!collectives_.empty()) {
      const Progress progress = collectives_.back().go_on();
      moved = moved || progress != Progress::stalled;
      if (progress != Progress::done) break;
      collectives_.pop_back();
    }
    std::set<std::pair<Transfer, int>> busy;
    std::erase_if(messages_, [&](Message& message) {
      if (busy.contains(message.way())) return false;
      const Progress progress = message.go_on();
      moved = moved || progress != Progress::stalled;
      if (progress != Progress::done) busy.insert(message.way());
      return progress == Progress::done;
    });
    if (collectives_.empty() && messages_.empty()) return end();
    return moved ? Progress::moved : Progress::stalled;
  }

 private:
  Progress end() {
    --link_->under_way;
    return Progress::done;
  }

  std::shared_ptr<Link> link_;
  std::vector<Collective> collectives_;  // the next one last
  std::vector<Message> messages_;
};

}  // namespace

std::function<Progress()> start(std::shared_ptr<Link> link,
                                std::shared_ptr<const std::vector<Request>> requests) {
  ++link->under_way;
  auto run = std::make_shared<Run>(std::move(link), *requests);
  return [run] { return run->go_on(); };
}

}  // namespace emulation
