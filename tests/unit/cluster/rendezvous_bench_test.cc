// The benchmarks of the rendezvous, small: what they measure must hold at all, whatever the machine is doing.
#include <gtest/gtest.h>

#include "tests/bench/rendezvous/measure.h"
#include "tests/bench/rendezvous/without_sockets.h"

namespace dtrain::bench {
namespace {

TEST(RendezvousScale, SomeHundredLaunchersMeetFailAndEnd) {
  const ScaleResult result = measure_scale(300, 2, 0.1);
  EXPECT_EQ(result.trouble, "");
  EXPECT_LT(result.joined_s, 15);
  EXPECT_LT(result.failure_ms, 10000);
  EXPECT_LT(result.server_mib, 200);
}

TEST(RendezvousScale, SomeThousandLaunchersMeetAndFailWithoutSockets) {
  const WorkResult result = measure_without_sockets(3000);
  EXPECT_EQ(result.trouble, "");
  EXPECT_LT(result.joined_s, 15);
  EXPECT_LT(result.failure_s, 10);
  EXPECT_GT(result.mib, 1);
}

TEST(RendezvousHostile, StrangersDisturbNobody) {
  AttackPlan plan;
  plan.idle = 300;
  const HostileResult result = measure_hostile(plan, 2, 0.5);
  EXPECT_EQ(result.trouble, "");
  EXPECT_EQ(result.members_lost, 0);
  EXPECT_GT(result.joins, 0U);
  EXPECT_LT(result.join_p99_ms, 2000);
  EXPECT_GT(result.attacks.replays, 0);
  EXPECT_GT(result.attacks.idle_opened, 0);
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  EXPECT_LT(result.server_mib_peak, result.server_mib_before + 64);
#endif
  EXPECT_LT(result.loss_percent, 80);
}

}  // namespace
}  // namespace dtrain::bench
