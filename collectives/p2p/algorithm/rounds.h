// The engine of collectives in two levels: data is cut into a part a rank, its owner, and parts into
// segments, one a round. Four stages, each a round behind the one before, so that memory and network are busy
// at once:
//   0. every rank gives its contribution to a part to the gateway of the part's owner on its host;
//   1. the gateway adds them up and sends the sums to the owner;
//   2. the owner adds up all hosts' sums and sends the result to its host's ranks and to its gateways;
//   3. a gateway hands the result on to its host's ranks.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/p2p/algorithm/context.h"
#include "collectives/p2p/algorithm/sum_tree.h"
#include "collectives/p2p/algorithm/topology.h"
#include "collectives/p2p/reduce.h"

namespace dtrain::p2p {

/// What the contributions of a host's ranks are added up to, and where each sum begins in a message that has
/// `count` elements of each.
class HostSums {
 public:
  HostSums(const Topology& topology, int host, DType dtype);

  const std::vector<TreeNode>& nodes() const noexcept { return nodes_; }
  std::size_t offset(std::size_t node, std::size_t count) const noexcept;
  std::size_t bytes(std::size_t count) const noexcept { return offset(nodes_.size(), count); }

 private:
  std::vector<TreeNode> nodes_;
  std::vector<std::size_t> widths_;  // bytes an element of each
};

/// What is to be done; the same on all ranks but for the memory.
struct RoundsJob {
  std::vector<Part> parts;      ///< by owner; some may be empty
  const void* input = nullptr;  ///< contributions, where the parts say; null: stages 2 and 3 only
  void* result = nullptr;       ///< where the result of this rank's own part goes, or lies already
  void* output = nullptr;       ///< where all results go, as the parts say; null: stages 0 and 1 only
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
};

class Rounds {
 public:
  /// `topology` is borrowed.
  Rounds(const AlgorithmContext& context, const Topology& topology, RoundsJob job);
  void run();

 private:
  struct Sums {  // of one round
    std::byte* memory;
    std::unique_ptr<UnboundBuffer> buffer;
  };

  void lay_out();
  Part segment(int owner, std::size_t round) const noexcept;
  bool is_here(int rank) const noexcept { return topology_.host_of(rank) == host_; }
  /// Owners whose gateway on this host is `member`: those of the next host first, those here last.
  const std::vector<int>& owners_by(int member) const noexcept;
  template <class Body>
  void for_each_other_host(Body body) const;

  void expect_sums(std::size_t round);
  void start_contributions(std::size_t step);
  void add_up_contributions(std::size_t round);
  void add_up_here(std::size_t step, Part part, std::byte* sums);
  void expect_results(std::size_t round);
  void finish_own(std::size_t round);
  void add_up_hosts(std::size_t round, Part own, std::byte* result);
  void hand_on(std::size_t round);

  const AlgorithmContext context_;
  const Topology& topology_;
  const RoundsJob job_;
  const int rank_, host_;
  const std::size_t width_;
  std::size_t segment_ = 1, rounds_ = 0;     // elements; how many of them
  std::vector<std::vector<int>> owners_by_;  // by index among this host's members
  std::size_t most_owners_ = 0;
  std::vector<HostSums> sums_of_;   // by host
  std::size_t most_sum_bytes_ = 0;  // of one segment from one host
  // Two of each, in turn.
  std::array<std::unique_ptr<ReceiveBuffers>, 2> contributions_;
  std::array<Sums, 2> own_sums_;    // of this host, for each owner this rank is the gateway of
  std::array<Sums, 2> other_sums_;  // of the other hosts, for this rank's part
  std::array<std::unique_ptr<UnboundBuffer>, 2> crossing_;  // results from other hosts
  std::unique_ptr<UnboundBuffer> given_, shared_, results_, handed_on_;
  std::vector<Operand> operands_;
};

}  // namespace dtrain::p2p
