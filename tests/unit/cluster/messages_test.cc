// Every message comes back as it was sent, whatever is too long is cut, and nothing else decodes.
#include "cluster/rendezvous/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {
namespace {

Failure full_failure() {
  Failure failure;
  failure.kind = Failure::Kind::launcher_lost;
  failure.node_rank = 3;
  failure.host = "gpu003";
  failure.rank = 25;
  failure.exit_code = 139;
  failure.consequence = true;
  failure.lines = {"rank 25 failed first", "", std::string("\0\xff\x1b", 3)};
  return failure;
}

std::vector<RoundNode> some_nodes() {
  std::vector<RoundNode> nodes;
  int first = 0;
  const auto add = [&](int node_rank, const std::string& host, int nproc) {
    nodes.push_back({node_rank, host, nproc, first});
    first += nproc;
  };
  for (int i = 0; i < 20; ++i) add(i, "gpu" + std::to_string(100 + i), 8);
  add(20, "gpu120", 4);
  add(22, "gpu121", 4);
  add(23, "login", 1);
  add(24, "login", 1);
  add(25, "r1n09", 1);
  add(26, "r1n10", 1);
  add(27, "r1n9", 1);
  add(28, "r1n10", 1);
  add(30, "", 1);
  add(31, "123456789012345", 1);
  add(32, "a", 2);
  return nodes;
}

std::vector<LeaderEvent> some_leader_events() {
  return {Waiting{{"7/8 nodes", "x"}},
          Waiting{},
          Forming{3, 1, some_nodes()},
          Start{3, 2, 1, some_nodes(), 29500, 1234567890123456789, "run"},
          Stop{3, true, false, 15, true, full_failure()},
          Stop{0, false, true, std::nullopt, false, std::nullopt},
          Over{75, full_failure()},
          Over{0, std::nullopt},
          Refused{"node_rank 1 is taken"},
          Refused{"no answer", true},
          LeaseLost{"the link is gone"},
          Start{4, 0, 1, some_nodes(), 29500, 5, "run", "10.0.0.1", true},
          KeptOut{4, "its disk is slow"}};
}

std::vector<NodeEvent> some_node_events() {
  return {Ready{2, 65535}, Failed{1, std::chrono::milliseconds(12), full_failure()}, Ended{7, 75},
          Signalled{12}};
}

NodeOffer full_offer() { return {5, "gpu005", "10.0.0.5 (eth0)", 8, {{"nnodes", "8"}, {"program", ""}}}; }

TEST(Messages, NewsComeBack) {
  for (const LeaderEvent& event : some_leader_events()) {
    const std::string bytes = encode(event);
    const auto back = decode_leader_event(bytes);
    ASSERT_TRUE(back) << event.index();
    EXPECT_EQ(back->index(), event.index());
    EXPECT_EQ(encode(*back), bytes);
  }
  const auto start = std::get<Start>(*decode_leader_event(encode(LeaderEvent(some_leader_events()[3]))));
  EXPECT_EQ(start.restart_count, 2);
  EXPECT_EQ(start.self, 1);
  EXPECT_EQ(start.launch_time_ns, 1234567890123456789);
  EXPECT_EQ(start.run_id, "run");
  EXPECT_EQ(start.master_port, 29500);
  const auto stop = std::get<Stop>(*decode_leader_event(encode(LeaderEvent(some_leader_events()[4]))));
  EXPECT_EQ(stop.signal, 15);
  EXPECT_TRUE(stop.again && stop.at_once && !stop.checkpoint_first);
  EXPECT_EQ(stop.failure->kind, Failure::Kind::launcher_lost);
  EXPECT_EQ(stop.failure->rank, 25);
  EXPECT_EQ(stop.failure->exit_code, 139);
  EXPECT_TRUE(stop.failure->consequence);
  EXPECT_EQ(stop.failure->lines, full_failure().lines);
}

TEST(Messages, NodesComeBackInRuns) {
  const auto nodes = some_nodes();
  const auto back = std::get<Forming>(*decode_leader_event(encode(LeaderEvent(Forming{0, 0, nodes})))).nodes;
  ASSERT_EQ(back.size(), nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(back[i].host, nodes[i].host);
    EXPECT_EQ(back[i].node_rank, nodes[i].node_rank);
    EXPECT_EQ(back[i].nproc, nodes[i].nproc);
    EXPECT_EQ(back[i].first_rank, nodes[i].first_rank);
  }
  std::vector<RoundNode> many;
  for (int i = 0; i < 10000; ++i) many.push_back({i, "gpu" + std::to_string(10000 + i), 8, i * 8});
  EXPECT_LT(encode(LeaderEvent(Forming{0, 0, many})).size(), 100U);
}

TEST(Messages, AWorldOfNamesWithoutAPatternStillFits) {
  std::vector<RoundNode> many;
  for (int i = 0; i < 100'000; ++i)
    many.push_back({i, std::to_string(i * 7919LL) + std::string(60, 'x'), 1, i});
  const std::string bytes = encode(LeaderEvent(Start{0, 0, 0, many, 1, 1, "run"}));
  EXPECT_LT(bytes.size(), wire::kMaxValueBytes);
  EXPECT_EQ(std::get<Start>(*decode_leader_event(bytes)).nodes.size(), 100'000U);
}

TEST(Messages, WordsOffersAndAdmissionsComeBack) {
  for (const NodeEvent& event : some_node_events()) {
    const auto back = decode_node_event(encode(event));
    ASSERT_TRUE(back);
    EXPECT_EQ(encode(*back), encode(event));
  }
  const auto failed = std::get<Failed>(*decode_node_event(encode(some_node_events()[1])));
  EXPECT_EQ(failed.age, std::chrono::milliseconds(12));
  const auto offer = decode_offer(encode(full_offer()));
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->node_rank, 5);
  EXPECT_EQ(offer->nproc, 8);
  EXPECT_EQ(offer->must_match, full_offer().must_match);
  Admission back{3, "", {}};
  back.as_before = true;
  EXPECT_TRUE(decode_admission(encode(back))->as_before);
  const auto admission = decode_admission(encode(Admission{3, "no", {"a"}}));
  EXPECT_EQ(admission->node_rank, 3);
  EXPECT_EQ(admission->refused, "no");
}

TEST(Messages, WhatIsTooLongIsCutAndStillDecodes) {
  Failure failure = full_failure();
  failure.lines.clear();
  for (int i = 0; i < 1000; ++i) failure.lines.push_back(std::to_string(i) + std::string(5000, 'x'));
  failure.host = std::string(1000, 'h');
  const auto over = decode_leader_event(encode(LeaderEvent(Over{1, failure})));
  ASSERT_TRUE(over);
  const auto& lines = std::get<Over>(*over).failure->lines;
  EXPECT_EQ(lines.size(), kMaxLines);
  EXPECT_EQ(lines.front().substr(0, 2), "0x");
  EXPECT_EQ(lines[24], "…");
  EXPECT_EQ(lines.back().substr(0, 4), "999x");
  NodeOffer offer = full_offer();
  offer.address = std::string(10000, 'a');
  for (int i = 0; i < 1000; ++i) offer.must_match.emplace_back(std::string(100, 'k'), std::string(9000, 'v'));
  EXPECT_TRUE(decode_offer(encode(offer)));
  EXPECT_TRUE(decode_leader_event(encode(LeaderEvent(Refused{std::string(100000, 'r')}))));
}

TEST(Messages, CutOrLongerBytesDoNotDecode) {
  for (const LeaderEvent& event : some_leader_events()) {
    const std::string bytes = encode(event);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode_leader_event(bytes.substr(0, size)));
    EXPECT_FALSE(decode_leader_event(bytes + '\0'));
  }
  const std::string offer = encode(full_offer());
  for (std::size_t size = 0; size < offer.size(); ++size) EXPECT_FALSE(decode_offer(offer.substr(0, size)));
  for (const NodeEvent& event : some_node_events()) EXPECT_FALSE(decode_node_event(encode(event) + "x"));
}

TEST(Messages, ImpossibleValuesDoNotDecode) {
  std::string event = encode(LeaderEvent(Over{1, full_failure()}));
  event[0] = 7;
  EXPECT_FALSE(decode_leader_event(event));
  event[0] = 4;
  ASSERT_TRUE(decode_leader_event(event));
  event[5] = 2;  // "has a cause"
  EXPECT_FALSE(decode_leader_event(event));
  NodeOffer none = full_offer();
  none.nproc = 0;
  EXPECT_FALSE(decode_offer(encode(none)));
  // Two nodes with one node_rank; first ranks beyond an int.
  EXPECT_FALSE(decode_leader_event(encode(LeaderEvent(Forming{0, 0, {{1, "a", 1, 0}, {1, "b", 1, 1}}}))));
  std::vector<RoundNode> wide;
  for (int i = 0; i < 4096; ++i) wide.push_back({i, "", 1 << 20, 0});
  EXPECT_FALSE(decode_leader_event(encode(LeaderEvent(Forming{0, 0, wide}))));
}

TEST(Messages, TheRoundCanBeSeenWithoutDecoding) {
  EXPECT_EQ(round_of(encode(LeaderEvent(Forming{7, 0, {}}))), 7);
  EXPECT_EQ(round_of(encode(LeaderEvent(Stop{9, false, false, {}, false, {}}))), 9);
  EXPECT_FALSE(round_of(encode(LeaderEvent(Over{3, {}}))));
  EXPECT_FALSE(round_of(""));
}

TEST(Messages, FlippedBytesNeverBreakTheDecoder) {
  std::mt19937 random(1);
  for (const LeaderEvent& event : some_leader_events()) {
    for (int i = 0; i < 3000; ++i) {
      std::string bytes = encode(event);
      for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
      const auto back = decode_leader_event(bytes);
      EXPECT_TRUE(!back || decode_leader_event(encode(*back)));
    }
  }
}

}  // namespace
}  // namespace dtrain::rendezvous
