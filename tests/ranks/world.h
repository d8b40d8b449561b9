// Runs a scenario on every rank of a real world: forked processes that meet in a TCP store for tcp, gloo and
// nccl, ranks under mpirun for mpi. Each rank's verdict comes back as text.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/factory.h"

namespace dtrain::test {

/// What a scenario gets besides its communicator.
struct Rank {
  std::unique_ptr<Communicator> communicator;
  std::string folder;   ///< shared by the ranks of this world
  Bootstrap bootstrap;  ///< what the communicator was made from; more can be made under other names

  int rank() const { return communicator->rank(); }
  int size() const { return communicator->size(); }
  /// Leaves this process's id for others, and reads theirs.
  void publish_pid() const;
  int pid_of(int rank) const;
};

/// Returns the verdict: "ok" or what went wrong. An exception's text is the verdict too.
using Scenario = std::function<std::string(Rank&)>;

struct WorldOptions {
  std::chrono::milliseconds call_timeout{20'000};  ///< Bootstrap::timeout
  std::chrono::seconds run_timeout{60};
  std::optional<Token> token = std::nullopt;         ///< of the store and of tcp
  Protection protection = Protection::authenticate;  ///< of tcp
};

/// Scenarios are found by name, so that mpirun can start this very program again for one of them.
void register_scenario(const std::string& name, Scenario scenario, WorldOptions options = {});

/// `backend` is self, threads (of this process), tcp, gloo or mpi, whose ranks then pass messages as they
/// would between machines, or one of the last three with _shm behind it, whose ranks share memory; or nccl on
/// the emulated machine, a GPU a rank (Bootstrap::device). Behind that may stand an algorithm of all_reduce
/// and which ranks share a (pretended) host: "threads hierarchical pairs", "tcp_shm ring one"; see
/// host_of_rank(). Verdicts by rank; "no verdict, exit code N" for a rank that died without one.
std::vector<std::string> run_world(std::string_view backend, int size, const std::string& scenario);

/// The host of a rank of `size`: "one" for all; "pairs" of neighbours; "halves", blocks of half of the ranks;
/// "dealt" out in turn to two hosts; "lone": the first rank alone on the first of two; "apart": each its own.
int host_of_rank(std::string_view hosts, int rank, int size);

/// True when this build can run `backend` (one of run_world()'s).
bool has_backend(std::string_view backend);

/// Tests of scenarios by backend.
class OnBackend : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_backend(GetParam())) GTEST_SKIP() << GetParam() << " is not in this build";
  }
  void expect_ok(const std::string& scenario, std::initializer_list<int> sizes) {
    for (const int size : sizes) {
      for (const auto& verdict : run_world(GetParam(), size, scenario))
        EXPECT_EQ(verdict, "ok") << size << " ranks";
    }
  }
};

/// main() of a test program with scenarios.
int run_tests_or_scenario(int argc, char** argv);

}  // namespace dtrain::test
