// What the algorithms of collectives are made of: the tree of sums, which ranks share a host, and the choice
// of an algorithm. The collectives themselves are tested with ranks (tests/ranks).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/p2p/algorithm/collective_plan.h"
#include "collectives/p2p/algorithm/ring.h"
#include "collectives/p2p/algorithm/sum_tree.h"
#include "collectives/p2p/algorithm/tree.h"
#include "collectives/p2p/reduce.h"
#include "runtime/base/error.h"

namespace dtrain::p2p {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kSegment = 128 * 1024;

std::vector<TreeNode> nodes(int world, std::vector<int> held) { return complete_nodes(world, held); }

TEST(SumTree, ABlockOfAPowerOfTwoIsOneSum) {
  EXPECT_THAT(nodes(8, {0, 1, 2, 3}), ElementsAre(TreeNode{0, 4}));
  EXPECT_THAT(nodes(8, {4, 5, 6, 7}), ElementsAre(TreeNode{4, 8}));
  EXPECT_THAT(nodes(6, {0, 1, 2}), ElementsAre(TreeNode{0, 2}, TreeNode{2, 3}));
  EXPECT_THAT(nodes(6, {3, 4, 5}), ElementsAre(TreeNode{3, 4}, TreeNode{4, 6}));
  EXPECT_THAT(nodes(7, {4, 5, 6}), ElementsAre(TreeNode{4, 7})) << "the right half of seven is three";
}

TEST(SumTree, RanksThatAreNoNeighboursStayApart) {
  EXPECT_THAT(nodes(4, {0, 2}), ElementsAre(TreeNode{0, 1}, TreeNode{2, 3}));
  EXPECT_THAT(nodes(4, {1, 2}), ElementsAre(TreeNode{1, 2}, TreeNode{2, 3}));
  EXPECT_THAT(nodes(1, {0}), ElementsAre(TreeNode{0, 1}));
}

// Rounding tells the order: 1 + 2^-24 is 1, two of the small ones first are not lost.
TEST(Reduce, GoesAlongTheTree) {
  const std::vector<float> large = {1.0F}, small = {0x1p-24F};
  std::vector<float> out(1);
  const Operand four[] = {{large.data()}, {large.data()}, {small.data()}, {small.data()}};
  reduce(DType::f32, ReduceOp::sum, out.data(), four, 1);
  EXPECT_EQ(out[0], 2.0F) << "2 + 2^-23 is 2";
  const Operand mixed[] = {{small.data()}, {small.data()}, {large.data()}, {small.data()}};
  reduce(DType::f32, ReduceOp::sum, out.data(), mixed, 1);
  EXPECT_EQ(out[0], 1.0F + 0x1p-23F) << "the two small ones are added first";
}

TEST(Reduce, NodesAreOperandsOfWhatTheyAreNodesOf) {
  constexpr std::size_t kCount = 3000;  // several blocks
  constexpr int kWorld = 7;
  std::vector<std::vector<BFloat16>> leaves;
  for (int rank = 0; rank < kWorld; ++rank) {
    leaves.emplace_back();
    for (std::size_t i = 0; i < kCount; ++i)
      leaves.back().emplace_back(1.0F / static_cast<float>(i % 97 + static_cast<std::size_t>(rank) + 1));
  }
  const auto leaf = [&](int rank) { return Operand{leaves[static_cast<std::size_t>(rank)].data()}; };
  std::vector<BFloat16> at_once(kCount), by_nodes(kCount);
  std::vector<Operand> all;
  for (int rank = 0; rank < kWorld; ++rank) all.push_back(leaf(rank));
  reduce(DType::bf16, ReduceOp::sum, at_once.data(), all, kCount);
  EXPECT_EQ(sum_dtype(DType::bf16), DType::f32);
  std::vector<float> left(kCount), right(kCount);
  const Operand of_left[] = {leaf(0), leaf(1), leaf(2), leaf(3)}, of_right[] = {leaf(4), leaf(5)};
  reduce_to_node(DType::bf16, ReduceOp::sum, left.data(), of_left, kCount);
  reduce_to_node(DType::bf16, ReduceOp::sum, right.data(), of_right, kCount);
  const Operand parts[] = {{left.data(), 4}, {right.data(), 2}, leaf(6)};
  reduce(DType::bf16, ReduceOp::sum, by_nodes.data(), parts, kCount);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(by_nodes[i].bits, at_once[i].bits) << i;
}

TEST(Ring, CarriesFewNodes) {
  EXPECT_THAT(ring_nodes(4, 1, 2), ElementsAre(TreeNode{1, 2}, TreeNode{2, 3}));
  EXPECT_THAT(ring_nodes(4, 3, 2), ElementsAre(TreeNode{0, 1}, TreeNode{3, 4}));
  for (const auto& [world, expected] : {std::pair{2, 1.0}, {4, 1.5}, {8, 2.14}, {16, 2.9}}) {
    double all = 0;
    std::size_t most = 0;
    for (int first = 0; first < world; ++first) {
      for (int gathered = 1; gathered < world; ++gathered) {
        const std::size_t nodes_there = ring_nodes(world, first, gathered).size();
        all += static_cast<double>(nodes_there);
        most = std::max(most, nodes_there);
      }
    }
    EXPECT_LE(most, most_ring_nodes(world));
    EXPECT_NEAR(all / (world * (world - 1)), expected, 0.01) << world << " ranks, against a plain ring";
  }
}

TEST(Tree, EveryRankButTheFirstHasAParentThatKnowsIt) {
  for (const int world : {1, 2, 3, 4, 6, 7, 8, 13}) {
    for (int rank = 0; rank < world; ++rank) {
      const TreePlace place = tree_place(world, rank);
      EXPECT_EQ(place.node.begin, rank);
      int leaves = 1;
      for (const TreeNode& child : place.children) {
        EXPECT_EQ(child.begin, rank + leaves);
        EXPECT_EQ(tree_place(world, child.begin).parent, rank);
        EXPECT_EQ(tree_place(world, child.begin).node, child);
        leaves += child.leaves();
      }
      EXPECT_EQ(place.node.leaves(), leaves) << rank << " of " << world;
      EXPECT_EQ(place.parent < 0, rank == 0);
    }
  }
}

Topology blocks(int hosts, int ranks) {
  std::vector<std::uint64_t> identities;
  for (int rank = 0; rank < hosts * ranks; ++rank)
    identities.push_back(7U + static_cast<unsigned>(rank / ranks));
  return Topology(identities);
}

TEST(Topology, NumbersHostsByTheirFirstRanks) {
  const std::vector<std::uint64_t> identities = {9, 4, 9, 4, 4, 2};
  const Topology topology(identities);
  EXPECT_EQ(topology.hosts(), 3);
  EXPECT_THAT(topology.members(0), ElementsAre(0, 2));
  EXPECT_THAT(topology.members(1), ElementsAre(1, 3, 4));
  EXPECT_THAT(topology.members(2), ElementsAre(5));
  EXPECT_TRUE(topology.is_mixed());
  EXPECT_EQ(topology.text(), "3 hosts, 6 ranks");
  EXPECT_EQ(topology.gateway(0, 3), 2) << "the second of one is paired with the second of the other";
  EXPECT_EQ(topology.gateway(0, 4), 0) << "the third has to share";
  EXPECT_EQ(topology.gateway(1, 3), 3);
  EXPECT_EQ(topology.gateway(2, 2), 5);
  EXPECT_FALSE(Topology(4).is_mixed());
  EXPECT_EQ(Topology(4).text(), "4 hosts x 1 rank");
  EXPECT_EQ(blocks(2, 4).text(), "2 hosts x 4 ranks");
}

TEST(CollectivePlan, TakesLevelsWhereHostsHaveSeveralRanks) {
  const GroupCosts costs;
  const CollectivePlan spans(blocks(2, 4), AllReduceAlgorithm::automatic, costs, kSegment);
  EXPECT_EQ(spans.all_reduce_route(std::size_t{64} << 20), Route::two_levels);
  EXPECT_EQ(spans.all_reduce_route(1024), Route::first_ranks);
  EXPECT_TRUE(spans.has_levels());
  EXPECT_EQ(spans.text(), "auto on 2 hosts x 4 ranks: hierarchical");
  for (const int ranks : {4, 128}) {
    const CollectivePlan one(blocks(1, ranks), AllReduceAlgorithm::automatic, costs, kSegment);
    EXPECT_EQ(one.all_reduce_route(std::size_t{64} << 20), Route::direct);
    EXPECT_EQ(one.all_reduce_route(16), Route::direct);
    EXPECT_FALSE(one.has_levels());
  }
}

TEST(CollectivePlan, GivesWhatIsAskedFor) {
  const GroupCosts costs;
  const auto route = [&](AllReduceAlgorithm asked, const Topology& topology) {
    return CollectivePlan(topology, asked, costs, kSegment).all_reduce_route(std::size_t{1} << 20);
  };
  EXPECT_EQ(route(AllReduceAlgorithm::direct, blocks(2, 4)), Route::direct);
  EXPECT_EQ(route(AllReduceAlgorithm::ring, blocks(2, 4)), Route::ring);
  EXPECT_EQ(route(AllReduceAlgorithm::tree, blocks(1, 4)), Route::tree);
  EXPECT_EQ(route(AllReduceAlgorithm::hierarchical, blocks(2, 4)), Route::two_levels);
  EXPECT_EQ(route(AllReduceAlgorithm::hierarchical, blocks(1, 4)), Route::direct) << "there is one level";
  EXPECT_FALSE(CollectivePlan(blocks(2, 4), AllReduceAlgorithm::direct, costs, kSegment).has_levels());
}

// Against the wire alone: 2·(h-1)/h·M over a link's speed, r times that for the direct way.
TEST(CollectivePlan, PredictsWhatTheWireTakes) {
  GroupCosts costs;
  costs.between = {50e-6, 5e-6, 1 / 117e6};  // 1 Gbit/s
  const double m = 64.0 * (1 << 20);
  for (const int hosts : {2, 4}) {
    const CollectivePlan plan(blocks(hosts, 4), AllReduceAlgorithm::automatic, costs, kSegment);
    const double wire = 2 * (hosts - 1.0) / hosts * m / 117e6;
    EXPECT_NEAR(plan.predict(Route::two_levels, std::size_t{64} << 20) / wire, 1, 0.1);
    EXPECT_NEAR(plan.predict(Route::direct, std::size_t{64} << 20) / wire, 4, 0.2);
  }
}

TEST(AllReduceAlgorithms, HaveNames) {
  EXPECT_EQ(all_reduce_algorithm_named("ring"), AllReduceAlgorithm::ring);
  EXPECT_EQ(name_of(AllReduceAlgorithm::automatic), "auto");
  try {
    all_reduce_algorithm_named("star");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected auto, direct, ring, tree, hierarchical, got 'star'"));
  }
}

}  // namespace
}  // namespace dtrain::p2p
