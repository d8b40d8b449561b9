#include "collectives/p2p/algorithm/rounds.h"

#include <algorithm>

namespace dtrain::p2p {
namespace {

// The phases that messages of the stages carry.
constexpr std::uint64_t kContribution = 0, kSums = 1, kResult = 2, kHandedOn = 3;
// Stages overlap where a part has several segments; smaller ones cost more than that gains.
constexpr std::size_t kSegmentsWanted = 8, kLeastSegmentBytes = 64 * 1024;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

HostSums::HostSums(const Topology& topology, int host, DType dtype)
    : nodes_(complete_nodes(topology.size(), topology.members(host))) {
  for (const TreeNode& node : nodes_)
    widths_.push_back(size_of(node.leaves() == 1 ? dtype : sum_dtype(dtype)));
}

// Each is aligned for any type.
std::size_t HostSums::offset(std::size_t node, std::size_t count) const noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < node; ++i) bytes += aligned(widths_[i] * count);
  return bytes;
}

Rounds::Rounds(const AlgorithmContext& context, const Topology& topology, RoundsJob job)
    : context_(context),
      topology_(topology),
      job_(std::move(job)),
      rank_(context.transport.rank()),
      host_(topology.host_of(rank_)),
      width_(size_of(job_.dtype)) {
  const int hosts = topology_.hosts();
  for (const int member : topology_.members(host_)) {
    std::vector<int>& owners = owners_by_.emplace_back();
    for (int step = 1; step <= hosts; ++step) {
      for (const int owner : topology_.members((host_ + step) % hosts)) {
        if (topology_.gateway(host_, owner) == member) owners.push_back(owner);
      }
    }
    most_owners_ = std::max(most_owners_, owners.size());
  }
  std::size_t longest = 0;
  for (const Part& part : job_.parts) longest = std::max(longest, part.count());
  const std::size_t share = kMostScratchBytes / (2 * static_cast<std::size_t>(topology_.size()));
  const std::size_t most = std::max(width_, std::min(context_.segment_bytes, share));
  const std::size_t wanted = std::max(longest * width_ / kSegmentsWanted, kLeastSegmentBytes);
  segment_ = std::max<std::size_t>(1, std::min(most, wanted) / width_);
  segment_ = std::min(segment_, std::max<std::size_t>(1, longest));
  rounds_ = (longest + segment_ - 1) / segment_;
  lay_out();
}

// All scratch memory, and the buffers over it and over the caller's.
void Rounds::lay_out() {
  const std::size_t size = static_cast<std::size_t>(topology_.size());
  std::size_t whole = 0;
  for (const Part& part : job_.parts) whole = std::max(whole, part.end * width_);
  if (job_.input != nullptr) {
    for (int host = 0; host < topology_.hosts(); ++host) {
      sums_of_.emplace_back(topology_, host, job_.dtype);
      most_sum_bytes_ = std::max(most_sum_bytes_, sums_of_.back().bytes(segment_));
    }
    const std::size_t stride = segment_ * width_, contributions = aligned(stride * size),
                      own = most_sum_bytes_ * owners_by(rank_).size(),
                      others = most_sum_bytes_ * static_cast<std::size_t>(topology_.hosts());
    std::byte* memory = scratch_of(context_, 2 * (contributions + own + others));
    for (std::size_t turn = 0; turn < 2; ++turn) {
      contributions_[turn] = context_.transport.receive_buffers(memory, stride);
      memory += contributions;
      own_sums_[turn] = {memory, context_.transport.make_buffer(memory, own)};
      memory += own;
      other_sums_[turn] = {memory, context_.transport.make_buffer(memory, others)};
      memory += others;
    }
    given_ = context_.transport.make_buffer(for_sending(job_.input), whole);
  }
  if (job_.output == nullptr) return;
  for (auto& buffer : crossing_) buffer = context_.transport.make_buffer(job_.output, whole);
  const Part own = job_.parts[static_cast<std::size_t>(rank_)];
  shared_ = context_.transport.make_buffer(job_.result, own.count() * width_);
  results_ = context_.transport.make_buffer(job_.output, whole);
  handed_on_ = context_.transport.make_buffer(job_.output, whole);
}

Part Rounds::segment(int owner, std::size_t round) const noexcept {
  const Part part = job_.parts[static_cast<std::size_t>(owner)];
  const std::size_t begin = std::min(part.end, part.begin + round * segment_);
  return {begin, std::min(part.end, begin + segment_)};
}

const std::vector<int>& Rounds::owners_by(int member) const noexcept {
  const std::vector<int>& members = topology_.members(host_);
  return owners_by_[static_cast<std::size_t>(std::lower_bound(members.begin(), members.end(), member) -
                                             members.begin())];
}

template <class Body>
void Rounds::for_each_other_host(Body body) const {
  for (int step = 1; step < topology_.hosts(); ++step) body((host_ + step) % topology_.hosts());
}

// On any link messages come in the order in which a rank sends them. Whatever a rank waits for, it has
// expected all that may come before it: results of a round are expected before sums of the next but one are
// waited for.
void Rounds::run() {
  const bool reduces = job_.input != nullptr, gathers = job_.output != nullptr;
  if (reduces && rounds_ > 0) start_contributions(0);
  for (std::size_t turn = 0; turn < rounds_ + 2; ++turn) {
    if (reduces && turn < rounds_) {
      expect_sums(turn);
      add_up_contributions(turn);
    }
    if (turn >= 1 && turn - 1 < rounds_) finish_own(turn - 1);
    if (gathers && turn >= 2) hand_on(turn - 2);
  }
  if (reduces) {
    given_->wait_sends(context_.watchdog);
    for (const Sums& sums : own_sums_) sums.buffer->wait_sends(context_.watchdog);
  }
  if (!gathers) return;
  results_->wait_receives(context_.watchdog);
  shared_->wait_sends(context_.watchdog);
  handed_on_->wait_sends(context_.watchdog);
}

void Rounds::expect_sums(std::size_t round) {
  const Part own = segment(rank_, round);
  if (own.count() == 0) return;
  for_each_other_host([&](int host) {
    other_sums_[round % 2].buffer->receive(topology_.gateway(host, rank_), context_.tag + kSums,
                                           static_cast<std::size_t>(host) * most_sum_bytes_,
                                           sums_of_[static_cast<std::size_t>(host)].bytes(own.count()));
  });
}

// A step is the part of a round that concerns one owner by each gateway.
void Rounds::start_contributions(std::size_t step) {
  const std::size_t round = step / most_owners_, which = step % most_owners_;
  const std::vector<int>& members = topology_.members(host_);
  if (const std::vector<int>& owners = owners_by(rank_); which < owners.size()) {
    if (const Part part = segment(owners[which], round); part.count() > 0) {
      for (const int member : members) {
        if (member != rank_)
          contributions_[step % 2]->expect(member, context_.tag + kContribution, part.count() * width_);
      }
    }
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank_ || which >= owners_by_[i].size()) continue;
    const Part part = segment(owners_by_[i][which], round);
    if (part.count() > 0)
      given_->send(members[i], context_.tag + kContribution, part.begin * width_, part.count() * width_);
  }
}

void Rounds::add_up_contributions(std::size_t round) {
  Sums& sums = own_sums_[round % 2];
  sums.buffer->wait_sends(context_.watchdog);
  const std::vector<int>& owners = owners_by(rank_);
  for (std::size_t which = 0; which < most_owners_; ++which) {
    const std::size_t step = round * most_owners_ + which;
    if (step + 1 < rounds_ * most_owners_) start_contributions(step + 1);
    contributions_[step % 2]->wait(context_.watchdog);
    const Part part = which < owners.size() ? segment(owners[which], round) : Part{};
    if (part.count() == 0) continue;
    const std::size_t place = which * most_sum_bytes_;
    add_up_here(step, part, sums.memory + place);
    contributions_[step % 2]->release();
    if (owners[which] == rank_) continue;
    sums.buffer->send(owners[which], context_.tag + kSums, place,
                      sums_of_[static_cast<std::size_t>(host_)].bytes(part.count()));
  }
}

void Rounds::add_up_here(std::size_t step, Part part, std::byte* sums) {
  const HostSums& wanted = sums_of_[static_cast<std::size_t>(host_)];
  for (std::size_t i = 0; i < wanted.nodes().size(); ++i) {
    const TreeNode node = wanted.nodes()[i];
    operands_.clear();
    for (int member = node.begin; member < node.end; ++member) {
      operands_.push_back({member == rank_ ? at(job_.input, part.begin * width_)
                                           : contributions_[step % 2]->message(member)});
    }
    reduce_to_node(job_.dtype, job_.op, sums + wanted.offset(i, part.count()), operands_, part.count());
  }
}

void Rounds::finish_own(std::size_t round) {
  if (job_.output != nullptr) expect_results(round);
  const Part own = segment(rank_, round);
  if (own.count() == 0) return;
  const std::size_t place = round * segment_ * width_, bytes = own.count() * width_;
  if (job_.input != nullptr) {
    other_sums_[round % 2].buffer->wait_receives(context_.watchdog);
    add_up_hosts(round, own, at(job_.result, place));
  }
  if (job_.output == nullptr) return;
  for_each_other_host(
      [&](int host) { shared_->send(topology_.gateway(host, rank_), context_.tag + kResult, place, bytes); });
  for (const int member : topology_.members(host_)) {
    if (member != rank_) shared_->send(member, context_.tag + kResult, place, bytes);
  }
}

// A result comes only when this rank's contribution to it has been read, so it may overwrite that.
void Rounds::expect_results(std::size_t round) {
  const auto expect = [&](UnboundBuffer& buffer, int from, int owner, std::uint64_t phase) {
    const Part part = segment(owner, round);
    if (part.count() > 0)
      buffer.receive(from, context_.tag + phase, part.begin * width_, part.count() * width_);
  };
  const std::vector<int>& members = topology_.members(host_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const int owner : owners_by_[i]) {
      if (owner == rank_) continue;
      if (is_here(owner)) {
        expect(*results_, owner, owner, kResult);
      } else if (members[i] == rank_) {
        expect(*crossing_[round % 2], owner, owner, kResult);
      } else {
        expect(*results_, members[i], owner, kHandedOn);
      }
    }
  }
}

// The operands go from left to right in the tree, whichever host they come from.
void Rounds::add_up_hosts(std::size_t round, Part own, std::byte* result) {
  struct Sum {
    TreeNode node;
    const std::byte* data;
  };
  const std::vector<int>& owners = owners_by(rank_);
  const auto own_place =
      static_cast<std::size_t>(std::find(owners.begin(), owners.end(), rank_) - owners.begin());
  std::vector<Sum> sums;
  for (int host = 0; host < topology_.hosts(); ++host) {
    const HostSums& of_host = sums_of_[static_cast<std::size_t>(host)];
    const std::byte* message =
        host == host_ ? own_sums_[round % 2].memory + own_place * most_sum_bytes_
                      : other_sums_[round % 2].memory + static_cast<std::size_t>(host) * most_sum_bytes_;
    for (std::size_t i = 0; i < of_host.nodes().size(); ++i)
      sums.push_back({of_host.nodes()[i], message + of_host.offset(i, own.count())});
  }
  std::ranges::sort(sums, {}, [](const Sum& sum) { return sum.node.begin; });
  operands_.clear();
  for (const Sum& sum : sums) operands_.push_back({sum.data, sum.node.leaves()});
  reduce(job_.dtype, job_.op, result, operands_, own.count());
}

void Rounds::hand_on(std::size_t round) {
  crossing_[round % 2]->wait_receives(context_.watchdog);
  for (const int owner : owners_by(rank_)) {
    const Part part = segment(owner, round);
    if (is_here(owner) || part.count() == 0) continue;
    for (const int member : topology_.members(host_)) {
      if (member != rank_)
        handed_on_->send(member, context_.tag + kHandedOn, part.begin * width_, part.count() * width_);
    }
  }
}

}  // namespace dtrain::p2p
