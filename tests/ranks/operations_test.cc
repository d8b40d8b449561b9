// Every operation, on every backend, for several world sizes, counts and dtypes, against one plain reference:
// the contributions combined along the tree over the ranks, in float32 for bf16.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "tests/ranks/reference.h"
#include "tests/ranks/world.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

const Deadline kSoon = Deadline::never();  // the world's own call timeout bounds everything
const std::vector<std::size_t> kCounts = {0, 1, 1003, 300'007};

template <class T>
void check_dtype(Communicator& c, std::size_t count) {
  const int rank = c.rank(), world = c.size();
  const auto width = static_cast<std::size_t>(world);
  const std::string where = fmt::format("{} x {}", name_of(dtype_of<T>), count);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::prod}) {
    auto data = values<T>(rank, count);
    c.all_reduce(span_of(data), op, where)->wait(kSoon);
    expect_same(data, reference<T>(world, count, op), "all_reduce " + where);
  }
  auto input = values<T>(rank, count * width);
  std::vector<T> part(count);
  c.reduce_scatter(span_of(input), span_of(part), ReduceOp::sum, where)->wait(kSoon);
  const auto whole = reference<T>(world, count * width, ReduceOp::sum);
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(count) * rank;
  expect_same(part, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(count)),
              "reduce_scatter " + where);
  expect_same(input, values<T>(rank, count * width), "reduce_scatter's input " + where);

  auto mine = values<T>(rank, count);
  std::vector<T> all(count * width), expected;
  c.all_gather(span_of(mine), span_of(all), where)->wait(kSoon);
  for (int r = 0; r < world; ++r) {
    for (const T element : values<T>(r, count)) expected.push_back(element);
  }
  expect_same(all, expected, "all_gather " + where);

  for (int root = 0; root < world; root += 2) {
    auto data = values<T>(rank, count);
    c.broadcast(span_of(data), root, where)->wait(kSoon);
    expect_same(data, values<T>(root, count), "broadcast " + where);
  }
}

// Everyone passes its values to the next rank, even ranks sending first.
void check_pairs(Communicator& c, std::size_t count) {
  const int rank = c.rank(), world = c.size();
  if (world == 1) return;
  auto mine = values<float>(rank, count);
  std::vector<float> theirs(count);
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  for (int round = 0; round < 3; ++round) {
    // The last rank of an odd world neighbours an even one: it sends last, and the ring resolves from rank 1
    // on.
    if (rank % 2 == 0) {
      auto sent = c.send(span_of(mine), next, "ring");
      c.receive(span_of(theirs), previous, "ring")->wait(kSoon);
      sent->wait(kSoon);
    } else {
      c.receive(span_of(theirs), previous, "ring")->wait(kSoon);
      c.send(span_of(mine), next, "ring")->wait(kSoon);
    }
    expect_same(theirs, values<float>(previous, count), "send/receive");
  }
}

std::string all_operations(Rank& self) {
  Communicator& c = *self.communicator;
  for (const std::size_t count : kCounts) {
    check_dtype<float>(c, count);
    check_dtype<BFloat16>(c, count);
    if (count > 2000) continue;  // one wide and one narrow type cover the large path
    check_dtype<double>(c, count);
    check_dtype<std::int64_t>(c, count);
    check_dtype<std::int32_t>(c, count);
    check_dtype<std::uint8_t>(c, count);
  }
  for (const std::size_t count : {std::size_t{1}, std::size_t{200'003}}) check_pairs(c, count);
  c.barrier("end")->wait(kSoon);
  return "ok";
}

// Many calls under way at once come out in order, whichever of them is waited for first.
std::string many_at_once(Rank& self) {
  Communicator& c = *self.communicator;
  std::vector<std::vector<float>> data;
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < 40; ++i) data.push_back(values<float>(self.rank() + i, i % 3 == 0 ? 50'000 : 10));
  for (auto& one : data)
    works.push_back(c.all_reduce(span_of(one), ReduceOp::sum, fmt::format("{}", works.size())));
  works[20]->wait(kSoon);
  if (!works[0]->done()) return "call 1 is not done though call 21 is";
  for (auto& work : works) work->wait(kSoon);
  for (int i = 0; i < 40; ++i) {
    const auto& got = data[static_cast<std::size_t>(i)];
    const float expected = along_the_tree<float>(0, self.size(), ReduceOp::sum,
                                                 [&](int rank) { return value<float>(rank + i, 3); });
    if (got[3] != expected) return fmt::format("call {}: got {}, expected {}", i, got[3], expected);
  }
  return "ok";
}

// Rank 0's calls begin when it waits, the others' at once: with the same results, and not before.
std::string started_by_waiting(Rank& self) {
  Communicator& c = *self.communicator;
  const std::string looked = self.folder + "/looked";
  if (self.rank() == 0) c.set_call_start(CallStart::on_wait);
  auto first = values<float>(self.rank(), 10), second = values<float>(self.rank(), 50'000);
  const auto one = c.all_reduce(span_of(first), ReduceOp::sum, "first");
  const auto two = c.all_reduce(span_of(second), ReduceOp::sum, "second");
  if (self.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (one->done()) return "a call was over before rank 0 waited for it";
    write_file(looked, "");
  }
  for (int i = 0; self.rank() == 0 && self.size() > 1 && !std::filesystem::exists(looked); ++i) {
    if (i == 1000) return "rank 1 did not come";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  two->wait(kSoon);
  if (!one->done()) return "the first call is not over though the second is";
  expect_same(first, reference<float>(self.size(), 10, ReduceOp::sum), "first");
  expect_same(second, reference<float>(self.size(), 50'000, ReduceOp::sum), "second");
  const auto never_waited_for = c.barrier("leaving begins it");
  return "ok";
}

std::string split_groups(Rank& self) {
  Communicator& c = *self.communicator;
  const int rank = self.rank(), world = self.size();
  // Odd and even ranks, each in reverse order.
  const auto half = c.split(rank % 2, -rank, kSoon);
  const int expected_size = rank % 2 == 0 ? (world + 1) / 2 : world / 2;
  const int expected_rank = expected_size - 1 - rank / 2;
  if (half->size() != expected_size || half->rank() != expected_rank) {
    return fmt::format("expected rank {} of {}, got {} of {}", expected_rank, expected_size, half->rank(),
                       half->size());
  }
  std::vector<std::int32_t> sum = {rank};
  half->all_reduce(span_of(sum), ReduceOp::sum, "sum")->wait(kSoon);
  int expected = 0;
  for (int r = rank % 2; r < world; r += 2) expected += r;
  if (sum[0] != expected) return fmt::format("expected sum {}, got {}", expected, sum[0]);
  c.barrier("whole group still works")->wait(kSoon);
  return "ok";
}

// A hash of every result: equal on all ranks, in all runs, on all backends.
std::string digest(Rank& self) {
  Communicator& c = *self.communicator;
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::size_t count : {std::size_t{7}, std::size_t{5000}, std::size_t{123'457}}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = 1.0F / static_cast<float>(i * 7 + static_cast<std::size_t>(self.rank()) + 1);
    c.all_reduce(span_of(data), ReduceOp::sum, "digest")->wait(kSoon);
    for (const float element : data) hash = (hash ^ std::bit_cast<std::uint32_t>(element)) * 1099511628211ULL;
  }
  return fmt::format("{:x}", hash);
}

struct Case {
  const char* backend;
  int size;
};

class Operations : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_backend(GetParam().backend)) GTEST_SKIP() << GetParam().backend << " is not in this build";
  }
  void expect_ok(const std::string& scenario) {
    const auto verdicts = run_world(GetParam().backend, GetParam().size, scenario);
    for (std::size_t rank = 0; rank < verdicts.size(); ++rank)
      EXPECT_EQ(verdicts[rank], "ok") << "rank " << rank;
  }
};

std::string name_of_case(const testing::TestParamInfo<Case>& one) {
  return fmt::format("{}{}", one.param.backend, one.param.size);
}

TEST_P(Operations, AgreeWithTheReference) { expect_ok("all_operations"); }
TEST_P(Operations, RunInOrder) { expect_ok("many_at_once"); }
TEST_P(Operations, MayBeginWhenWaitedFor) { expect_ok("started_by_waiting"); }
TEST_P(Operations, Split) { expect_ok("split_groups"); }

INSTANTIATE_TEST_SUITE_P(Worlds, Operations,
                         testing::Values(Case{"self", 1}, Case{"tcp", 1}, Case{"tcp", 2}, Case{"tcp", 3},
                                         Case{"tcp", 4}, Case{"tcp", 7}, Case{"gloo", 3}, Case{"mpi", 1},
                                         Case{"mpi", 2}, Case{"mpi", 3}, Case{"mpi", 4}, Case{"mpi", 7},
                                         Case{"threads", 1}, Case{"threads", 2}, Case{"threads", 3},
                                         Case{"threads", 4}, Case{"threads", 7}, Case{"tcp_shm", 1},
                                         Case{"tcp_shm", 2}, Case{"tcp_shm", 3}, Case{"tcp_shm", 4},
                                         Case{"tcp_shm", 7}, Case{"mpi_shm", 2}, Case{"mpi_shm", 3}),
                         name_of_case);

TEST(Determinism, SameBitsOnEveryRankRunAndBackend) {
  for (const int size : {2, 3, 5}) {
    const auto first = run_world("tcp", size, "digest");
    for (const auto& verdict : first) EXPECT_EQ(verdict, first[0]);
    EXPECT_EQ(run_world("tcp", size, "digest"), first);
    if (has_backend("gloo")) {
      EXPECT_EQ(run_world("gloo", size, "digest"), first);
    }
    EXPECT_EQ(run_world("tcp_shm", size, "digest"), first);
    EXPECT_EQ(run_world("threads", size, "digest"), first);
    for (const char* backend : {"threads ring one", "threads tree one", "threads hierarchical pairs"}) {
      EXPECT_EQ(run_world(backend, size, "digest"), first) << backend;
    }
    if (has_backend("mpi")) {
      EXPECT_EQ(run_world("mpi", size, "digest"), first);
    }
  }
}

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("all_operations", all_operations);
  register_scenario("many_at_once", many_at_once);
  register_scenario("started_by_waiting", started_by_waiting);
  register_scenario("split_groups", split_groups);
  register_scenario("digest", digest);
  return run_tests_or_scenario(argc, argv);
}
