// The cost model fitted to times, kept in a file, and applied to larger jobs.
#include "worker/benchmark/link_fit.h"

#include <gmock/gmock.h>

#include <fstream>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using p2p::CollectivePlan, p2p::GroupCosts, p2p::LinkCosts, p2p::Topology;
using ::testing::HasSubstr;

/// What the model says of such links; each time is a share longer or shorter than the last by turns.
std::vector<TimedReduction> timed(int ranks, const LinkCosts& link, double noise) {
  const CollectivePlan plan(Topology(ranks), AllReduceAlgorithm::direct,
                            {link, link, GroupCosts{}.reduced_byte}, std::size_t{1} << 20);
  std::vector<TimedReduction> times;
  for (std::size_t bytes = 1024; bytes <= std::size_t{64} << 20; bytes *= 4) {
    noise = -noise;
    times.push_back({bytes, (1 + noise) * plan.predict(p2p::Route::direct, bytes)});
  }
  return times;
}

TEST(LinkFit, FindsTheLinkThatTheTimesAreOf) {
  const double message = GroupCosts{}.between.message;
  for (const int ranks : {2, 3, 8}) {
    for (const LinkCosts& link : {LinkCosts{30e-6, message, 1 / 1.1e9}, LinkCosts{2e-6, message, 1 / 8e9}}) {
      const LinkFit exact = fit_link(ranks, timed(ranks, link, 0));
      EXPECT_NEAR(exact.costs.latency / link.latency, 1, 1e-6) << ranks;
      EXPECT_NEAR(exact.costs.byte / link.byte, 1, 1e-6) << ranks;
      EXPECT_LE(exact.error, 1e-6);
      const LinkFit noisy = fit_link(ranks, timed(ranks, link, 0.05));
      EXPECT_NEAR(noisy.costs.byte / link.byte, 1, 0.1) << ranks;
      EXPECT_NEAR(noisy.error, 0.05, 0.05) << ranks;
    }
  }
  const TimedReduction one[] = {{1024, 1e-5}};
  EXPECT_THROW(fit_link(2, one), UsageError);
}

TEST(LinkFit, ComesBackFromItsFile) {
  const test::TempDir folder;
  const auto file = [&](const std::string& text) {
    std::ofstream(folder / "link.json") << text;
    return folder / "link.json";
  };
  GroupCosts costs;
  const GroupCosts before = costs;
  read_link(file(link_json(LinkKind::between, 4, {{25e-6, 5e-6, 1 / 3e9}, 0.02})), costs);
  EXPECT_EQ(costs.between.latency, 25e-6);
  EXPECT_EQ(costs.between.byte, 1 / 3e9);
  EXPECT_EQ(costs.within.latency, before.within.latency);
  read_link(file(link_json(LinkKind::within, 8, {{3e-6, 5e-6, 1 / 9e9}, 0.02})), costs);
  EXPECT_EQ(costs.within.latency, 3e-6);

  const auto refusal = [&](const std::string& text) {
    try {
      read_link(file(text), costs);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("no JSON"), HasSubstr("--fit"));
  EXPECT_THAT(refusal(R"({"link": "by post"})"), HasSubstr("by post"));
  EXPECT_THAT(refusal(R"({"link": "within a host", "latency_seconds": -1})"),
              HasSubstr("latency_seconds: a number of 0 or more"));
  EXPECT_THROW(read_link(folder / "nothing.json", costs), UsageError);
}

TEST(LinkFit, PredictsLargerJobs) {
  const GroupCosts costs;
  const std::size_t bytes = std::size_t{100} << 20;
  EXPECT_EQ(predict_all_reduce(1, 1, bytes, costs).seconds, 0);
  const PredictedReduction few = predict_all_reduce(2, 8, bytes, costs),
                           many = predict_all_reduce(64, 8, bytes, costs);
  EXPECT_EQ(few.algorithm, AllReduceAlgorithm::hierarchical);
  EXPECT_EQ(many.workers, 512);
  // What leaves a host grows from 1 to nearly 2 times the data.
  EXPECT_GT(many.seconds, few.seconds);
  EXPECT_LT(many.seconds, 3 * few.seconds);
}

}  // namespace
}  // namespace dtrain
