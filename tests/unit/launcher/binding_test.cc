// Dealing cores out to workers.
#include "launcher/plan/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace dtrain::launcher {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CpuLayout two_nodes() {
  CpuLayout layout;
  layout.allowed = {0, 1, 2, 3, 4, 5, 6, 7};
  layout.nodes = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  layout.sockets = {{0, 1, 2, 3, 4, 5, 6, 7}};
  return layout;
}

TEST(Binding, ReadsTheKernelsLists) {
  EXPECT_THAT(parse_cpu_list("0-2,5"), ElementsAre(0, 1, 2, 5));
  EXPECT_EQ(cpu_list_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(cpu_list_text({}), "");
  EXPECT_THAT(parse_cpu_list("7\n"), ElementsAre(7));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("x"), IsEmpty());
  EXPECT_THAT(parse_cpu_list("3-1"), IsEmpty());
  EXPECT_THAT(parse_cpu_list("0-999999999"), IsEmpty());
}

TEST(Binding, NoneLeavesWorkersAlone) {
  EXPECT_THAT(bind_workers(Binding::none, 3, two_nodes(), {}), Each(IsEmpty()));
}

TEST(Binding, NodesAreFilledInTurn) {
  const auto bound = bind_workers(Binding::node, 4, two_nodes(), {});
  EXPECT_THAT(bound[1], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(bound[2], ElementsAre(4, 5, 6, 7));
}

TEST(Binding, AGpusNodeWins) {
  const auto bound = bind_workers(Binding::node, 2, two_nodes(), {1, 0});
  EXPECT_THAT(bound[0], ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(bound[1], ElementsAre(0, 1, 2, 3));
}

TEST(Binding, ExclusiveDealsOutAllAndOnlyAllowedCores) {
  CpuLayout layout = two_nodes();
  layout.allowed = {1, 2, 5, 6, 7};
  const auto bound = bind_workers(Binding::exclusive, 2, layout, {});
  EXPECT_THAT(bound[0], ElementsAre(1, 2));
  EXPECT_THAT(bound[1], ElementsAre(5, 6, 7));
  EXPECT_THAT(bind_workers(Binding::node, 2, layout, {})[0], ElementsAre(1, 2));
}

TEST(Binding, MoreWorkersThanCoresCannotHaveOneEach) {
  CpuLayout layout;
  layout.allowed = {3, 5};
  EXPECT_THAT(test::message_of([&] { bind_workers(Binding::exclusive, 3, layout, {}); }),
              ::testing::AllOf(HasSubstr("--numa-binding"), HasSubstr("cores, 2, got 3")));
}

TEST(Binding, QuotaLimitsUsableCores) {
  CpuLayout layout = two_nodes();
  EXPECT_EQ(usable_cores(layout), 8);
  layout.quota = 3;
  EXPECT_EQ(usable_cores(layout), 3);
  EXPECT_EQ(usable_cores(CpuLayout{}), 1);
}

TEST(Binding, RealLayoutHasCores) { EXPECT_GE(read_cpu_layout(true).allowed.size(), 1u); }

}  // namespace
}  // namespace dtrain::launcher
