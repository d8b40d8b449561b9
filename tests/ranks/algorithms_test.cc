// Every algorithm of all_reduce, and the collectives that take two levels with it, for ranks that share
// (pretended) hosts in different ways, against the one plain reference: the same bits in every case.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/ranks/reference.h"
#include "tests/ranks/world.h"

namespace dtrain::test {
namespace {

const Deadline kSoon = Deadline::never();  // the world's own call timeout bounds everything

template <class T>
void check_reductions(Communicator& c, std::size_t count, ReduceOp op) {
  const int rank = c.rank(), world = c.size();
  const std::size_t all = count * static_cast<std::size_t>(world);
  const std::string where = fmt::format("{} x {}", name_of(dtype_of<T>), count);
  auto data = values<T>(rank, count);
  c.all_reduce(span_of(data), op, where)->wait(kSoon);
  expect_same(data, reference<T>(world, count, op), "all_reduce " + where);
  for (int root = 0; root < world; root += 3) {
    data = values<T>(rank, count);
    c.reduce(span_of(data), op, root, where)->wait(kSoon);
    expect_same(data, rank == root ? reference<T>(world, count, op) : values<T>(rank, count),
                "reduce " + where);
  }
  auto input = values<T>(rank, all);
  std::vector<T> part(count);
  c.reduce_scatter(span_of(input), span_of(part), op, where)->wait(kSoon);
  const auto whole = reference<T>(world, all, op);
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(count) * rank;
  expect_same(part, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(count)),
              "reduce_scatter " + where);
  expect_same(input, values<T>(rank, all), "reduce_scatter's input " + where);
  // In place.
  MemorySpan own = span_of(input);
  own.data = input.data() + count * static_cast<std::size_t>(rank), own.count = count;
  c.reduce_scatter(span_of(input), own, op, where)->wait(kSoon);
  const auto mine = input.begin() + static_cast<std::ptrdiff_t>(count) * rank;
  expect_same(std::vector<T>(mine, mine + static_cast<std::ptrdiff_t>(count)), part,
              "reduce_scatter in place " + where);
}

void check_copies(Communicator& c, std::size_t count) {
  const int rank = c.rank(), world = c.size();
  auto mine = values<float>(rank, count);
  std::vector<float> all(count * static_cast<std::size_t>(world)), expected;
  c.all_gather(span_of(mine), span_of(all), "gathered")->wait(kSoon);
  for (int r = 0; r < world; ++r) {
    for (const float element : values<float>(r, count)) expected.push_back(element);
  }
  expect_same(all, expected, fmt::format("all_gather x {}", count));
  for (int root = 0; root < world; root += 2) {
    auto data = values<float>(rank, count);
    c.broadcast(span_of(data), root, "copied")->wait(kSoon);
    expect_same(data, values<float>(root, count), fmt::format("broadcast x {} of {}", count, root));
  }
}

std::string every_collective(Rank& self) {
  Communicator& c = *self.communicator;
  for (const std::size_t count : {0, 1, 5, 1003, 70'001}) {
    check_reductions<float>(c, count, ReduceOp::sum);
    check_reductions<BFloat16>(c, count, ReduceOp::sum);
    check_reductions<std::int8_t>(c, count, ReduceOp::max);
    check_copies(c, count);
  }
  return "ok";
}

// Large enough for every stage to have several segments, of which the last is smaller; several calls at once.
std::string many_segments(Rank& self) {
  Communicator& c = *self.communicator;
  constexpr std::size_t kCount = 1'300'021;
  auto first = values<float>(self.rank(), kCount), third = values<float>(self.rank(), 100);
  auto second = values<BFloat16>(self.rank(), kCount / 2);
  const auto one = c.all_reduce(span_of(first), ReduceOp::sum, "first");
  const auto two = c.all_reduce(span_of(second), ReduceOp::sum, "second");
  const auto three = c.all_reduce(span_of(third), ReduceOp::sum, "third");
  three->wait(kSoon);
  two->wait(kSoon), one->wait(kSoon);
  expect_same(first, reference<float>(self.size(), kCount, ReduceOp::sum), "first");
  expect_same(second, reference<BFloat16>(self.size(), kCount / 2, ReduceOp::sum), "second");
  expect_same(third, reference<float>(self.size(), 100, ReduceOp::sum), "third");
  auto copied = values<float>(self.rank(), kCount);
  c.broadcast(span_of(copied), self.size() - 1, "copied")->wait(kSoon);
  expect_same(copied, values<float>(self.size() - 1, kCount), "broadcast");
  return "ok";
}

// Everyone in turn gets an offer from each of the others, of its host or not.
std::string offers(Rank& self) {
  Communicator& c = *self.communicator;
  std::vector<std::int32_t> mine = {self.rank()}, theirs = {-1};
  for (int taker = 0; taker < self.size(); ++taker) {
    if (taker != self.rank()) {
      c.offer(span_of(mine), taker, "offer")->wait(kSoon);
      continue;
    }
    std::vector<bool> seen(static_cast<std::size_t>(self.size()));
    for (int i = 1; i < self.size(); ++i) {
      int from = -1;
      c.receive_any(span_of(theirs), from, "offer")->wait(kSoon);
      if (theirs[0] != from || seen[static_cast<std::size_t>(from)])
        return fmt::format("got {} from rank {}", theirs[0], from);
      seen[static_cast<std::size_t>(from)] = true;
    }
  }
  return "ok";
}

std::string split_across_hosts(Rank& self) {
  const auto half = self.communicator->split(self.rank() % 2, self.rank(), kSoon);
  auto data = values<float>(half->rank(), 5000);
  half->all_reduce(span_of(data), ReduceOp::sum, "half")->wait(kSoon);
  expect_same(data, reference<float>(half->size(), 5000, ReduceOp::sum), "a part of the group");
  return "ok";
}

std::string asks_for_another(Rank& self) {
  Bootstrap bootstrap = self.bootstrap;
  bootstrap.name = "at odds";
  if (self.rank() == 1) bootstrap.locality.all_reduce = AllReduceAlgorithm::ring;
  NullLog log;
  make_communicator(Backend::tcp, bootstrap, log);
  return "no error came";
}

class Algorithms : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_backend(GetParam())) GTEST_SKIP() << GetParam() << " is not in this build";
  }
  void expect_ok(const std::string& scenario, std::initializer_list<int> sizes) {
    for (const int size : sizes) {
      const auto verdicts = run_world(GetParam(), size, scenario);
      for (std::size_t rank = 0; rank < verdicts.size(); ++rank)
        EXPECT_EQ(verdicts[rank], "ok") << "rank " << rank << " of " << size;
    }
  }
};

std::string name_of_case(const testing::TestParamInfo<const char*>& one) {
  std::string name = one.param;
  std::ranges::replace(name, ' ', '_');
  return name;
}

class OnThreads : public Algorithms {};
TEST_P(OnThreads, HaveTheSameBits) { expect_ok("every_collective", {1, 2, 3, 4, 7, 8}); }
TEST_P(OnThreads, HaveTheSameBitsInSegments) { expect_ok("many_segments", {4, 6}); }
INSTANTIATE_TEST_SUITE_P(Worlds, OnThreads,
                         testing::Values("threads direct halves", "threads ring one", "threads tree one",
                                         "threads hierarchical pairs", "threads hierarchical halves",
                                         "threads hierarchical dealt", "threads hierarchical lone",
                                         "threads hierarchical apart", "threads auto pairs"),
                         name_of_case);

class OnProcesses : public Algorithms {};
TEST_P(OnProcesses, HaveTheSameBits) { expect_ok("every_collective", {3, 4}); }
TEST_P(OnProcesses, HaveTheSameBitsInSegments) { expect_ok("many_segments", {4}); }
TEST_P(OnProcesses, TakeOffersFromAnyone) { expect_ok("offers", {4}); }
TEST_P(OnProcesses, Split) { expect_ok("split_across_hosts", {4}); }
INSTANTIATE_TEST_SUITE_P(Worlds, OnProcesses,
                         testing::Values("tcp_shm direct halves", "tcp_shm direct lone",
                                         "tcp_shm hierarchical halves", "tcp_shm hierarchical lone",
                                         "tcp_shm auto pairs", "tcp_shm ring dealt", "tcp_shm tree dealt",
                                         "tcp hierarchical pairs", "gloo hierarchical pairs",
                                         "mpi hierarchical pairs"),
                         name_of_case);

TEST(Algorithm, IsTheSameOnAllRanks) {
  for (const auto& verdict : run_world("tcp", 3, "asks_for_another")) {
    EXPECT_THAT(verdict,
                testing::HasSubstr("expected the same on every rank, got auto on rank 0 and ring on rank 1"));
  }
}

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("every_collective", every_collective);
  register_scenario("many_segments", many_segments);
  register_scenario("offers", offers);
  register_scenario("split_across_hosts", split_across_hosts);
  register_scenario("asks_for_another", asks_for_another);
  return run_tests_or_scenario(argc, argv);
}
