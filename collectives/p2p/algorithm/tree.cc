#include "collectives/p2p/algorithm/tree.h"

#include <algorithm>
#include <array>

#include "collectives/p2p/reduce.h"

namespace dtrain::p2p {
namespace {

constexpr std::uint64_t kUp = 0, kDown = 1;

class Tree {
 public:
  Tree(const AlgorithmContext& context, void* data, std::size_t count, DType dtype, ReduceOp op)
      : context_(context),
        data_(data),
        count_(count),
        width_(size_of(dtype)),
        dtype_(dtype),
        op_(op),
        rank_(context.transport.rank()),
        place_(tree_place(context.transport.size(), rank_)) {
    const auto size = static_cast<std::size_t>(context.transport.size());
    const std::size_t most = std::min(context.segment_bytes, kMostScratchBytes / (2 * size + 2));
    segment_ = std::clamp<std::size_t>(most / size_of(sum_dtype(dtype)), 1, count);
    segments_ = (count + segment_ - 1) / segment_;
    const std::size_t stride = (segment_ * size_of(sum_dtype(dtype)) + 63) / 64 * 64;
    std::byte* memory = scratch_of(context, 2 * stride * (size + 1));
    for (std::size_t turn = 0; turn < 2; ++turn) {
      incoming_[turn] = context.transport.receive_buffers(memory, stride);
      sums_[turn] = memory + stride * size;
      up_[turn] = context.transport.make_buffer(sums_[turn], stride);
      results_[turn] = context.transport.make_buffer(data, count * width_);
      memory += stride * (size + 1);
    }
    down_ = context.transport.make_buffer(data, count * width_);
  }

  void run() {
    expect_sums(0);
    for (std::size_t segment = 0; segment < segments_; ++segment) {
      if (segment + 1 < segments_) expect_sums(segment + 1);
      incoming_[segment % 2]->wait(context_.watchdog);
      add_up(segment);
      incoming_[segment % 2]->release();
      if (place_.parent < 0) hand_down(segment);
    }
    if (place_.parent >= 0) {
      expect_result(0);
      for (std::size_t segment = 0; segment < segments_; ++segment) {
        if (segment + 1 < segments_) expect_result(segment + 1);
        results_[segment % 2]->wait_receives(context_.watchdog);
        hand_down(segment);
      }
    }
    for (const auto& buffer : up_) buffer->wait_sends(context_.watchdog);
    down_->wait_sends(context_.watchdog);
  }

 private:
  Part part(std::size_t segment) const {
    return {segment * segment_, std::min(count_, (segment + 1) * segment_)};
  }

  void expect_sums(std::size_t segment) {
    for (const TreeNode child : place_.children) {
      const std::size_t width = child.leaves() == 1 ? width_ : size_of(sum_dtype(dtype_));
      incoming_[segment % 2]->expect(child.begin, context_.tag + kUp, part(segment).count() * width);
    }
  }

  void add_up(std::size_t segment) {
    const Part own = part(segment);
    std::byte* const mine = at(data_, own.begin * width_);
    std::vector<Operand> operands = {{mine}};
    for (const TreeNode child : place_.children)
      operands.push_back({incoming_[segment % 2]->message(child.begin), child.leaves()});
    if (place_.parent < 0) return reduce(dtype_, op_, mine, operands, own.count());
    UnboundBuffer& up = *up_[segment % 2];
    up.wait_sends(context_.watchdog);
    reduce_to_node(dtype_, op_, sums_[segment % 2], operands, own.count());
    const std::size_t width = place_.node.leaves() == 1 ? width_ : size_of(sum_dtype(dtype_));
    up.send(place_.parent, context_.tag + kUp, 0, own.count() * width);
  }

  // It overwrites this rank's contribution only after that has climbed.
  void expect_result(std::size_t segment) {
    const Part own = part(segment);
    results_[segment % 2]->receive(place_.parent, context_.tag + kDown, own.begin * width_,
                                   own.count() * width_);
  }

  void hand_down(std::size_t segment) {
    const Part own = part(segment);
    for (auto child = place_.children.rbegin(); child != place_.children.rend(); ++child)
      down_->send(child->begin, context_.tag + kDown, own.begin * width_, own.count() * width_);
  }

  const AlgorithmContext& context_;
  void* const data_;
  const std::size_t count_, width_;
  const DType dtype_;
  const ReduceOp op_;
  const int rank_;
  const TreePlace place_;
  std::size_t segment_ = 1, segments_ = 0;
  std::array<std::byte*, 2> sums_{};
  std::array<std::unique_ptr<ReceiveBuffers>, 2> incoming_;
  std::array<std::unique_ptr<UnboundBuffer>, 2> up_, results_;
  std::unique_ptr<UnboundBuffer> down_;
};

}  // namespace

TreePlace tree_place(int size, int rank) {
  TreePlace place{-1, {0, size}, {}};
  while (place.node.leaves() > 1) {
    const int middle = place.node.begin + left_leaves(place.node.leaves());
    if (rank >= middle) {
      place.parent = place.node.begin;
      place.node.begin = middle;
    } else {
      if (place.node.begin == rank) place.children.insert(place.children.begin(), {middle, place.node.end});
      place.node.end = middle;
    }
  }
  if (!place.children.empty()) place.node.end = place.children.back().end;
  return place;
}

void tree_all_reduce(const AlgorithmContext& context, void* data, std::size_t count, DType dtype,
                     ReduceOp op) {
  Tree(context, data, count, dtype, op).run();
}

}  // namespace dtrain::p2p
