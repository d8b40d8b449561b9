// Rooted collectives, all_to_all, exchange and offers, on every backend, against the same plain reference as
// the others; and what is said when ranks disagree about them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/ranks/reference.h"
#include "tests/ranks/world.h"

namespace dtrain::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Deadline kSoon = Deadline::never();  // the world's own call timeout bounds everything
const std::vector<std::size_t> kCounts = {0, 1, 1003, 300'007};

template <class T>
std::vector<T> joined(int world, std::size_t count) {
  std::vector<T> all;
  for (int r = 0; r < world; ++r) {
    for (const T element : values<T>(r, count)) all.push_back(element);
  }
  return all;
}

template <class T>
void check_rooted(Communicator& c, std::size_t count, int root) {
  const int rank = c.rank(), world = c.size();
  const auto width = static_cast<std::size_t>(world);
  const std::string where = fmt::format("{} x {}, root {}", name_of(dtype_of<T>), count, root);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    auto data = values<T>(rank, count);
    c.reduce(span_of(data), op, root, where)->wait(kSoon);
    expect_same(data, rank == root ? reference<T>(world, count, op) : values<T>(rank, count),
                "reduce " + where);
  }
  auto mine = values<T>(rank, count);
  std::vector<T> all(rank == root ? count * width : 0);
  c.gather(span_of(mine), span_of(all), root, where)->wait(kSoon);
  if (rank == root) expect_same(all, joined<T>(world, count), "gather " + where);

  std::vector<T> whole(rank == root ? values<T>(root, count * width) : std::vector<T>{}), part(count);
  c.scatter(span_of(whole), span_of(part), root, where)->wait(kSoon);
  const auto expected = values<T>(root, count * width);
  const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(count) * rank;
  expect_same(part, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(count)), "scatter " + where);
}

// What rank `from` sends `to`: nothing to some, more to others.
std::size_t part_of(int from, int to, std::size_t count) {
  return (count + 3) * static_cast<std::size_t>((from * 2 + to * 3) % 4) / 3;
}

// Rank `from` numbers what it sends all others in one go.
template <class T>
void check_all_to_all(Communicator& c, std::size_t count) {
  const int rank = c.rank(), world = c.size();
  std::vector<std::size_t> sends, receives;
  std::vector<T> expected;
  for (int peer = 0; peer < world; ++peer) {
    sends.push_back(part_of(rank, peer, count));
    receives.push_back(part_of(peer, rank, count));
    std::size_t begin = 0, end = 0;
    for (int to = 0; to <= rank; ++to) begin = end, end += part_of(peer, to, count);
    const auto theirs = values<T>(peer, end);
    expected.insert(expected.end(), theirs.begin() + static_cast<std::ptrdiff_t>(begin), theirs.end());
  }
  auto input = values<T>(rank, std::accumulate(sends.begin(), sends.end(), std::size_t{0}));
  std::vector<T> output(expected.size());
  c.all_to_all(span_of(input), sends, span_of(output), receives, "shuffle")->wait(kSoon);
  expect_same(output, expected, fmt::format("all_to_all {} x {}", name_of(dtype_of<T>), count));
}

template <class T>
void check_dtype(Communicator& c, std::size_t count) {
  for (int root = 0; root < c.size(); root += 2) check_rooted<T>(c, count, root);
  check_all_to_all<T>(c, count);
}

std::string all_operations(Rank& self) {
  Communicator& c = *self.communicator;
  for (const std::size_t count : kCounts) {
    check_dtype<float>(c, count);
    check_dtype<BFloat16>(c, count);
    if (count > 2000) continue;  // one wide and one narrow type cover the large path
    check_dtype<Float16>(c, count);
    check_dtype<double>(c, count);
    check_dtype<std::int64_t>(c, count);
    check_dtype<std::int32_t>(c, count);
    check_dtype<std::int16_t>(c, count);
    check_dtype<std::int8_t>(c, count);
    check_dtype<std::uint8_t>(c, count);
    check_dtype<Bool>(c, count);
  }
  return "ok";
}

// Every rank sends to its two neighbours and receives from them, all at the same time and of other sizes each
// way; large ones would wait for each other as plain sends.
std::string crossing_messages(Rank& self) {
  Communicator& c = *self.communicator;
  const int rank = self.rank(), world = self.size();
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  if (world == 1) return c.exchange({}, {}, "none")->wait(kSoon), "ok";
  for (const std::size_t count : kCounts) {
    auto up = values<float>(rank, count), down = values<float>(rank + 100, count / 2);
    std::vector<float> from_below(count), from_above(count / 2);
    const std::vector<Message> sends = {{span_of(up), next}, {span_of(down), previous}};
    // In a world of two both neighbours are one: its messages come in the order in which it sends them.
    const std::vector<Message> receives = {{span_of(from_below), previous}, {span_of(from_above), next}};
    for (int round = 0; round < 2; ++round) {
      c.exchange(sends, receives, "halo")->wait(kSoon);
      expect_same(from_below, values<float>(previous, count), "exchange upwards");
      expect_same(from_above, values<float>(next + 100, count / 2), "exchange downwards");
    }
  }
  // The other side may do it by hand, in any order.
  auto mine = values<float>(rank, 1003);
  std::vector<float> theirs(1003);
  if (rank == 0) {
    const std::vector<Message> sends = {{span_of(mine), 1}}, receives = {{span_of(theirs), 1}};
    c.exchange(sends, receives, "by hand")->wait(kSoon);
    expect_same(theirs, values<float>(1, 1003), "exchange with plain calls");
  } else if (rank == 1) {
    c.receive(span_of(theirs), 0, "by hand")->wait(kSoon);
    c.send(span_of(mine), 0, "by hand")->wait(kSoon);
    expect_same(theirs, values<float>(0, 1003), "plain calls with an exchange");
  }
  c.barrier("end")->wait(kSoon);
  return "ok";
}

// Several messages to one rank arrive in the order in which they were sent, each whole.
std::string many_to_one(Rank& self) {
  Communicator& c = *self.communicator;
  const int next = (self.rank() + 1) % self.size(), previous = (self.rank() + self.size() - 1) % self.size();
  constexpr int kMessages = 60;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::vector<float>> mine, theirs(kMessages);
    std::vector<Message> sends, receives;
    for (int i = 0; i < kMessages; ++i) {
      const auto count = static_cast<std::size_t>(20'000 + i);
      mine.push_back(values<float>(self.rank() + 10 * i, count));
      theirs[static_cast<std::size_t>(i)].resize(count);
    }
    for (std::size_t i = 0; i < kMessages; ++i) {
      sends.push_back({span_of(mine[i]), next});
      receives.push_back({span_of(theirs[i]), previous});
    }
    c.exchange(sends, receives, "many")->wait(kSoon);
    for (std::size_t i = 0; i < kMessages; ++i)
      expect_same(theirs[i], values<float>(previous + 10 * static_cast<int>(i), theirs[i].size()),
                  fmt::format("message {} of round {}", i, round));
  }
  return "ok";
}

// Rank 0 takes what the others offer; who sleeps first comes last, and nobody's offers change their order.
std::string offers(Rank& self) {
  Communicator& c = *self.communicator;
  const int rank = self.rank(), world = self.size(), rounds = 3;
  for (const std::size_t count : kCounts) {
    if (rank != 0) {
      for (int round = 0; round < rounds; ++round) {
        auto mine = values<float>(rank + 10 * round, count);
        c.offer(span_of(mine), 0, "gradient")->wait(kSoon);
      }
      continue;
    }
    std::vector<int> seen(static_cast<std::size_t>(world));
    std::vector<float> got(count);
    for (int i = 0; i < rounds * (world - 1); ++i) {
      int from = -1;
      c.receive_any(span_of(got), from, "gradient")->wait(kSoon);
      if (from < 1 || from >= world) return fmt::format("an offer of rank {}", from);
      const int round = seen[static_cast<std::size_t>(from)]++;
      expect_same(got, values<float>(from + 10 * round, count), fmt::format("offer {} of {}", round, from));
    }
  }
  c.barrier("end")->wait(kSoon);
  return "ok";
}

std::string first_come_first_served(Rank& self) {
  Communicator& c = *self.communicator;
  std::vector<std::int32_t> word = {self.rank()};
  if (self.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  if (self.rank() != 0) return c.offer(span_of(word), 0, "word")->wait(kSoon), "ok";
  std::vector<int> order;
  for (int i = 1; i < self.size(); ++i) {
    int from = -1;
    c.receive_any(span_of(word), from, "word")->wait(kSoon);
    order.push_back(from);
  }
  return order.back() == 1 ? "ok" : fmt::format("the late rank 1 came before rank {}", order.back());
}

template <class Calls>
std::string expect_peer_error(Calls calls) {
  const TimePoint start = steady_clock().now();
  try {
    calls();
  } catch (const PeerError& error) {
    const auto took = std::chrono::duration<double>(steady_clock().now() - start).count();
    return took > 10 ? fmt::format("came after {:.1f} s only", took) : error.what();
  }
  return "no error came";
}

// The last rank expects one element more from the one before than that one sends.
std::string counts_differ(Rank& self) {
  Communicator& c = *self.communicator;
  const std::size_t world = static_cast<std::size_t>(self.size());
  std::vector<std::size_t> sends(world, 5), receives(world, 5);
  if (self.rank() == self.size() - 1) receives[world - 2] = 6;
  std::vector<float> input(5 * world), output(5 * world + (self.rank() == self.size() - 1 ? 1 : 0));
  return expect_peer_error(
      [&] { c.all_to_all(span_of(input), sends, span_of(output), receives, "shuffle")->wait(kSoon); });
}

std::string roots_differ(Rank& self) {
  Communicator& c = *self.communicator;
  auto data = values<float>(self.rank(), 100);
  return expect_peer_error(
      [&] { c.reduce(span_of(data), ReduceOp::sum, self.rank() == 0 ? 0 : 1, "norm")->wait(kSoon); });
}

// More than any backend keeps for a receiver that does not come.
constexpr std::size_t kLarge = 1'000'000;

// Rank 1 sends one element less than rank 0 expects; the others wait in a barrier.
std::string message_does_not_fit(Rank& self) {
  Communicator& c = *self.communicator;
  std::vector<float> a(10), b(self.rank() == 1 ? kLarge - 1 : 10);
  if (self.rank() == 0) a.resize(kLarge);
  return expect_peer_error([&] {
    if (self.rank() > 1) return c.barrier("after")->wait(kSoon);
    const std::vector<Message> sends = {{span_of(b), 1 - self.rank()}},
                               receives = {{span_of(a), 1 - self.rank()}};
    c.exchange(sends, receives, "halo")->wait(kSoon);
  });
}

std::string offer_does_not_fit(Rank& self) {
  Communicator& c = *self.communicator;
  std::vector<float> data(self.rank() == 0 ? kLarge : kLarge - 1);
  int from = -1;
  return expect_peer_error([&] {
    if (self.rank() > 1) return c.barrier("after")->wait(kSoon);
    const auto work = self.rank() == 0 ? c.receive_any(span_of(data), from, "gradient")
                                       : c.offer(span_of(data), 0, "gradient");
    work->wait(kSoon);
    c.barrier("after")->wait(kSoon);
  });
}

// Nobody is left to offer what rank 0 waits for.
std::string nobody_offers(Rank& self) {
  Communicator& c = *self.communicator;
  std::vector<float> data(10);
  int from = -1;
  return expect_peer_error([&] {
    if (self.rank() > 0) return c.barrier("after")->wait(kSoon);
    c.receive_any(span_of(data), from, "gradient")->wait(kSoon);
  });
}

struct Case {
  const char* backend;
  int size;
};

class Messages : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_backend(GetParam().backend)) GTEST_SKIP() << GetParam().backend << " is not in this build";
  }
  std::vector<std::string> run(const std::string& scenario) {
    return run_world(GetParam().backend, GetParam().size, scenario);
  }
  void expect_ok(const std::string& scenario) {
    const auto verdicts = run(scenario);
    for (std::size_t rank = 0; rank < verdicts.size(); ++rank)
      EXPECT_EQ(verdicts[rank], "ok") << "rank " << rank;
  }
};

class Operations : public Messages {};
TEST_P(Operations, AgreeWithTheReference) { expect_ok("all_operations"); }
TEST_P(Operations, MessagesMayCross) { expect_ok("crossing_messages"); }
TEST_P(Operations, OffersAreTakenFromAnyone) {
  if (GetParam().size > 1) expect_ok("offers");
}

class Many : public Messages {};
TEST_P(Many, KeepTheirOrderBetweenTwoRanks) { expect_ok("many_to_one"); }

class Order : public Messages {};
TEST_P(Order, FirstComeFirstServed) { expect_ok("first_come_first_served"); }

class Disagreements : public Messages {};
TEST_P(Disagreements, ShowBothSidesOnEveryRank) {
  const struct {
    const char *scenario, *one, *other;
  } cases[] = {
      {"counts_differ", "'shuffle'", "6"},
      {"roots_differ", "reduce(float32 x 100, sum, root 0, 'norm') #1", "root 1, 'norm') #1"},
      {"message_does_not_fit", "float32 x 1000000", "float32 x 999999"},
      {"offer_does_not_fit", "receive_any(float32 x 1000000, 'gradient')",
       "offer(float32 x 999999, to rank 0"},
      {"nobody_offers", "receive_any(float32 x 10, 'gradient')", "barrier('after')"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.scenario);
    for (const auto& verdict : run(one.scenario))
      EXPECT_THAT(verdict, AllOf(HasSubstr("different calls"), HasSubstr(one.one), HasSubstr(one.other)));
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& one) {
  return fmt::format("{}{}", one.param.backend, one.param.size);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Operations,
                         testing::Values(Case{"self", 1}, Case{"threads", 1}, Case{"threads", 2},
                                         Case{"threads", 3}, Case{"threads", 4}, Case{"threads", 7},
                                         Case{"tcp", 1}, Case{"tcp", 2}, Case{"tcp", 3}, Case{"tcp", 4},
                                         Case{"tcp", 7}, Case{"gloo", 3}, Case{"mpi", 2}, Case{"mpi", 3},
                                         Case{"mpi", 4}, Case{"mpi", 7}, Case{"tcp_shm", 2},
                                         Case{"tcp_shm", 3}, Case{"tcp_shm", 4}, Case{"tcp_shm", 7},
                                         Case{"mpi_shm", 3}),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Worlds, Many,
                         testing::Values(Case{"tcp", 3}, Case{"gloo", 3}, Case{"mpi", 3}, Case{"tcp_shm", 3},
                                         Case{"mpi_shm", 2}, Case{"threads", 3}, Case{"nccl", 2},
                                         Case{"nccl", 4}),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Worlds, Order,
                         testing::Values(Case{"tcp", 3}, Case{"gloo", 3}, Case{"mpi", 3}, Case{"tcp_shm", 3},
                                         Case{"threads", 3}),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Worlds, Disagreements,
                         testing::Values(Case{"tcp", 2}, Case{"tcp", 4}, Case{"gloo", 3}, Case{"mpi", 3},
                                         Case{"tcp_shm", 4}, Case{"threads", 4}),
                         name_of_case);

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("all_operations", all_operations);
  register_scenario("crossing_messages", crossing_messages);
  register_scenario("many_to_one", many_to_one);
  register_scenario("offers", offers);
  register_scenario("first_come_first_served", first_come_first_served);
  register_scenario("counts_differ", counts_differ);
  register_scenario("roots_differ", roots_differ);
  register_scenario("message_does_not_fit", message_does_not_fit);
  register_scenario("offer_does_not_fit", offer_does_not_fit);
  register_scenario("nobody_offers", nobody_offers);
  return run_tests_or_scenario(argc, argv);
}
