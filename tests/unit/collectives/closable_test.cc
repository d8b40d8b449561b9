// A communicator that has left: who it was stays known, and calls say so.
#include "collectives/closable_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/factory.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

TEST(ClosableCommunicator, KnowsWhoItWasAndRefusesCalls) {
  NullLog log;
  ClosableCommunicator world(make_communicator(Backend::self, {}, log));
  double one = 1;
  const auto add_up = [&] {
    world.all_reduce({&one, 1, DType::f64}, ReduceOp::sum, "loss")->wait(Deadline::never());
  };
  add_up();
  world.close();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.backend(), "self");
  EXPECT_THROW(add_up(), UsageError);
  EXPECT_THAT(test::message_of(add_up), HasSubstr("all_reduce('loss'): expected a call before"));
  world.abort("nobody hears it");
}

}  // namespace
}  // namespace dtrain
