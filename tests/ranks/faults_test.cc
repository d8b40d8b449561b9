// What must happen when ranks disagree, die, stop or give up: a PeerError on every rank that lives, in
// seconds, that says which rank, which call, and what the others did.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/ranks/world.h"

namespace dtrain::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();
constexpr std::size_t kLarge = 400'000;

struct Data {
  explicit Data(std::size_t count) : values(count, 1.0F) {}
  MemorySpan span() { return {values.data(), values.size(), DType::f32}; }
  std::vector<float> values;
};

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(steady_clock().now() - start).count();
}

// Runs `calls`, which must fail; the verdict is the error with rank and seconds in front.
template <class Calls>
std::string expect_peer_error(Calls calls) {
  const TimePoint start = steady_clock().now();
  try {
    calls();
  } catch (const PeerError& error) {
    const double took = seconds_since(start);
    if (took > 10.0) return fmt::format("came after {:.1f} s only: {}", took, error.what());
    return fmt::format("culprit={} operation={} sequence={} tensor={} | {}", error.failure().rank,
                       error.failure().operation, error.failure().sequence, error.failure().tensor,
                       error.what());
  }
  return "no error came";
}

// Two calls that agree, then `odd` on the last rank and `even` on the others, then waiting for both.
template <class Even, class Odd>
Scenario disagreement(Even even, Odd odd) {
  return [even, odd](Rank& self) {
    Communicator& c = *self.communicator;
    Data warm(100);
    c.all_reduce(warm.span(), ReduceOp::sum, "warm-up")->wait(kNever);
    c.barrier("warm-up")->wait(kNever);
    return expect_peer_error([&] { self.rank() == self.size() - 1 ? odd(c) : even(c); });
  };
}

void wait_for(const std::unique_ptr<Work>& work) { work->wait(kNever); }

void register_disagreements() {
  register_scenario("count", disagreement(
                                 [](Communicator& c) {
                                   Data d(10);
                                   wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                 },
                                 [](Communicator& c) {
                                   Data d(11);
                                   wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                 }));
  register_scenario("count_large", disagreement(
                                       [](Communicator& c) {
                                         Data d(kLarge);
                                         wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                       },
                                       [](Communicator& c) {
                                         Data d(kLarge / 2);
                                         wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                       }));
  register_scenario("count_zero", disagreement(
                                      [](Communicator& c) {
                                        Data d(10);
                                        wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                      },
                                      [](Communicator& c) {
                                        Data d(0);
                                        wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                      }));
  register_scenario("dtype",
                    disagreement(
                        [](Communicator& c) {
                          Data d(10);
                          wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                        },
                        [](Communicator& c) {
                          std::vector<std::int32_t> d(10);
                          wait_for(c.all_reduce({d.data(), 10, DType::i32}, ReduceOp::sum, "bucket 1"));
                        }));
  register_scenario("operation", disagreement(
                                     [](Communicator& c) {
                                       Data d(10);
                                       wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                     },
                                     [](Communicator& c) {
                                       Data d(10);
                                       wait_for(c.broadcast(d.span(), 0, "bucket 1"));
                                     }));
  register_scenario("root", disagreement(
                                [](Communicator& c) {
                                  Data d(10);
                                  wait_for(c.broadcast(d.span(), 0, "weights"));
                                },
                                [](Communicator& c) {
                                  Data d(10);
                                  wait_for(c.broadcast(d.span(), 1, "weights"));
                                }));
  register_scenario("message", disagreement(
                                   [](Communicator& c) {
                                     Data d(10);
                                     wait_for(c.all_reduce(d.span(), ReduceOp::sum, "bucket 1"));
                                   },
                                   [](Communicator& c) {
                                     Data d(10);
                                     wait_for(c.receive(d.span(), 0, "activations"));
                                   }));
  register_scenario("order", disagreement(
                                 [](Communicator& c) {
                                   Data a(50), b(50);
                                   const auto first = c.all_reduce(a.span(), ReduceOp::sum, "bucket 1");
                                   const auto second = c.all_reduce(b.span(), ReduceOp::sum, "bucket 2");
                                   wait_for(first), wait_for(second);
                                 },
                                 [](Communicator& c) {
                                   Data a(50), b(50);
                                   const auto second = c.all_reduce(b.span(), ReduceOp::sum, "bucket 2");
                                   const auto first = c.all_reduce(a.span(), ReduceOp::sum, "bucket 1");
                                   wait_for(first), wait_for(second);
                                 }));
}

// The last rank dies in the middle of a stream of calls.
std::string killed(Rank& self) {
  Communicator& c = *self.communicator;
  Data data(kLarge);
  c.barrier("start")->wait(kNever);
  return expect_peer_error([&] {
    for (int i = 0; i < 2000; ++i) {
      if (self.rank() == self.size() - 1 && i == 5) ::raise(SIGKILL);
      c.all_reduce(data.span(), ReduceOp::max, "gradients")->wait(kNever);
    }
  });
}

// Rank 0, where the store is, dies.
std::string first_killed(Rank& self) {
  Communicator& c = *self.communicator;
  Data data(1000);
  c.barrier("start")->wait(kNever);
  return expect_peer_error([&] {
    for (int i = 0; i < 2000; ++i) {
      if (self.rank() == 0 && i == 5) ::raise(SIGKILL);
      c.all_reduce(data.span(), ReduceOp::max, "gradients")->wait(kNever);
    }
  });
}

// The last rank stops; the others give up at their deadline of one second, then end it for good.
std::string stopped(Rank& self) {
  Communicator& c = *self.communicator;
  Data data(1000);
  self.publish_pid();
  c.barrier("start")->wait(kNever);
  if (self.rank() == self.size() - 1) ::raise(SIGSTOP);
  const std::string verdict = expect_peer_error(
      [&] { c.all_reduce(data.span(), ReduceOp::sum, "gradients")->wait(Deadline::after(seconds(1))); });
  if (self.rank() == 0) ::kill(self.pid_of(self.size() - 1), SIGKILL);
  return verdict;
}

// The last rank comes after the others have given up.
std::string late(Rank& self) {
  Communicator& c = *self.communicator;
  Data data(1000);
  c.barrier("start")->wait(kNever);
  if (self.rank() == self.size() - 1) std::this_thread::sleep_for(seconds(3));
  return expect_peer_error(
      [&] { c.all_reduce(data.span(), ReduceOp::sum, "gradients")->wait(Deadline::after(seconds(1))); });
}

// Rank 0 aborts from another thread while all wait for the last rank, which comes late.
std::string aborted(Rank& self) {
  Communicator& c = *self.communicator;
  Data data(1000);
  c.barrier("start")->wait(kNever);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(300));
    if (self.rank() == 0) c.abort("loss is not finite");
  });
  const std::string verdict = expect_peer_error([&] {
    if (self.rank() == self.size() - 1) std::this_thread::sleep_for(milliseconds(1500));
    c.all_reduce(data.span(), ReduceOp::sum, "gradients")->wait(kNever);
  });
  other.join();
  const std::string again = expect_peer_error([&] { c.barrier("later")->wait(kNever); });
  return again.find("loss is not finite") == std::string::npos ? "a later call: " + again : verdict;
}

// The last rank aborts the whole group and goes, while the others wait for it in a part of the group.
std::string aborted_beside_a_part(Rank& self) {
  Communicator& c = *self.communicator;
  const auto part = c.split(0, self.rank(), kNever);
  if (self.rank() == self.size() - 1) {
    std::this_thread::sleep_for(milliseconds(300));
    c.abort("loss is not finite");
    return "loss is not finite";
  }
  Data data(1000);
  return expect_peer_error([&] { part->all_reduce(data.span(), ReduceOp::sum, "gradients")->wait(kNever); });
}

// A slow rank is not an error: the others wait, look around, and continue.
std::string patient(Rank& self) {
  Communicator& c = *self.communicator;
  Data data(kLarge);
  for (int i = 0; i < 3; ++i) {
    if (self.rank() == i % self.size()) std::this_thread::sleep_for(milliseconds(700));
    c.all_reduce(data.span(), ReduceOp::max, "gradients")->wait(Deadline::after(seconds(15)));
  }
  return data.values[7] == 1.0F ? "ok" : "wrong result";
}

// Leaving early is found too: the last rank destroys its communicator while the others continue.
std::string left(Rank& self) {
  Data data(10);
  self.communicator->barrier("start")->wait(kNever);
  if (self.rank() == self.size() - 1) {
    self.communicator.reset();
    return "left";
  }
  return expect_peer_error(
      [&] { self.communicator->all_reduce(data.span(), ReduceOp::sum, "gradients")->wait(kNever); });
}

struct Case {
  const char* backend;
  int size;
};

class Faults : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_backend(GetParam().backend)) GTEST_SKIP() << GetParam().backend << " is not in this build";
  }
  std::vector<std::string> run(const std::string& scenario) {
    return run_world(GetParam().backend, GetParam().size, scenario);
  }
  int last() const { return GetParam().size - 1; }
  std::string last_text() const { return fmt::format("rank {}", last()); }

  void expect_both_sides(const std::string& scenario, const std::string& one, const std::string& other) {
    SCOPED_TRACE(scenario);
    const auto verdicts = run(scenario);
    for (const auto& verdict : verdicts) {
      EXPECT_THAT(verdict,
                  AllOf(HasSubstr("different calls"), HasSubstr(one), HasSubstr(other), HasSubstr("#3")));
    }
  }
};

/// What cannot happen to one thread alone.
class LostProcesses : public Faults {};

TEST_P(Faults, DisagreementShowsBothSidesOnEveryRank) {
  expect_both_sides("count", "all_reduce(float32 x 10, sum, 'bucket 1')",
                    "all_reduce(float32 x 11, sum, 'bucket 1')");
  expect_both_sides("count_large", "float32 x 400000", "float32 x 200000");
  expect_both_sides("count_zero", "float32 x 10", "float32 x 0");
  expect_both_sides("dtype", "float32 x 10", "int32 x 10");
  expect_both_sides("operation", "all_reduce(", "broadcast(");
  expect_both_sides("root", "root 0", "root 1");
  expect_both_sides("message", "all_reduce(", "receive(");
  expect_both_sides("order", "'bucket 1'", "'bucket 2'");
}

TEST_P(LostProcesses, KilledPeerIsNamedByAllOthers) {
  const auto verdicts = run("killed");
  for (int rank = 0; rank < last(); ++rank) {
    EXPECT_THAT(
        verdicts[static_cast<std::size_t>(rank)],
        AllOf(HasSubstr(fmt::format("culprit={} ", last())), HasSubstr("is lost"), HasSubstr("'gradients'")));
  }
}

TEST_P(LostProcesses, KilledFirstRankIsNamedByAllOthers) {
  const auto verdicts = run("first_killed");
  for (int rank = 1; rank <= last(); ++rank) {
    EXPECT_THAT(verdicts[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("culprit=0 "), HasSubstr("is lost")));
  }
}

TEST_P(LostProcesses, StoppedPeerIsNamedAtTheDeadline) {
  const auto verdicts = run("stopped");
  for (int rank = 0; rank < last(); ++rank) {
    EXPECT_THAT(verdicts[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr(fmt::format("culprit={} ", last())), HasSubstr("gave up after 1."),
                      HasSubstr("all_reduce(float32 x 1000, sum, 'gradients') #2")));
  }
}

/// What stands for a stopped process where there is none.
class LateThreads : public Faults {};

TEST_P(LateThreads, AreNamedAtTheDeadline) {
  const auto verdicts = run("late");
  for (int rank = 0; rank < last(); ++rank) {
    EXPECT_THAT(verdicts[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr(fmt::format("culprit={} ", last())), HasSubstr("gave up after 1."),
                      HasSubstr("all_reduce(float32 x 1000, sum, 'gradients') #2")));
  }
}

TEST_P(Faults, AbortReachesEveryRank) {
  for (const auto& verdict : run("aborted")) EXPECT_THAT(verdict, HasSubstr("loss is not finite"));
}

TEST_P(Faults, AbortReachesRanksThatWaitInAPartOfTheGroup) {
  for (const auto& verdict : run("aborted_beside_a_part"))
    EXPECT_THAT(verdict, HasSubstr("loss is not finite"));
}

TEST_P(Faults, SlownessIsNoFault) {
  for (const auto& verdict : run("patient")) EXPECT_EQ(verdict, "ok");
}

TEST_P(Faults, LeavingEarlyIsFound) {
  const auto verdicts = run("left");
  for (int rank = 0; rank < last(); ++rank) {
    EXPECT_THAT(verdicts[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr(last_text()), HasSubstr("called leave(")));
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& one) {
  std::string name = fmt::format("{}{}", one.param.backend, one.param.size);
  std::ranges::replace(name, ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Faults,
                         testing::Values(Case{"tcp", 2}, Case{"tcp", 4}, Case{"gloo", 3}, Case{"mpi", 3},
                                         Case{"tcp_shm", 4}, Case{"mpi_shm", 3}, Case{"threads", 4},
                                         Case{"tcp_shm hierarchical halves", 4},
                                         Case{"threads hierarchical dealt", 6}, Case{"threads ring one", 4},
                                         Case{"threads tree one", 4}),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Worlds, LateThreads, testing::Values(Case{"threads", 3}), name_of_case);
INSTANTIATE_TEST_SUITE_P(Worlds, LostProcesses,
                         testing::Values(Case{"tcp", 2}, Case{"tcp", 4}, Case{"gloo", 3}, Case{"mpi", 3},
                                         Case{"tcp_shm", 2}, Case{"tcp_shm", 4}, Case{"mpi_shm", 3},
                                         Case{"tcp_shm hierarchical halves", 4},
                                         Case{"tcp_shm ring pairs", 4}, Case{"tcp_shm tree pairs", 3}),
                         name_of_case);

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_disagreements();
  register_scenario("killed", killed);
  register_scenario("first_killed", first_killed);
  register_scenario("stopped", stopped);
  register_scenario("late", late);
  register_scenario("aborted", aborted);
  register_scenario("aborted_beside_a_part", aborted_beside_a_part);
  register_scenario("patient", patient);
  register_scenario("left", left);
  return run_tests_or_scenario(argc, argv);
}
