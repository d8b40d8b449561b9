// The thread that writes records: order, entries that are refused for a while or for good, waiting.
#include "training/run/scribe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "runtime/base/error.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

using test::MemoryLog;

TEST(Scribe, WritesInOrderBesideTheCaller) {
  NullLog log;
  std::vector<int> written;
  {
    Scribe scribe(log);
    for (int i = 0; i < 1000; ++i) scribe.post([&written, i] { written.push_back(i); });
    EXPECT_TRUE(scribe.drain(Deadline::after(std::chrono::minutes(1))));
    EXPECT_TRUE(scribe.idle());
    ASSERT_EQ(written.size(), 1000U);
    scribe.post([&] { written.push_back(1000); });
  }
  for (std::size_t i = 0; i < written.size(); ++i) EXPECT_EQ(written[i], static_cast<int>(i));
  EXPECT_EQ(written.size(), 1001U);
}

TEST(Scribe, TriesAgainWhatIsRefused) {
  MemoryLog log;
  Scribe scribe(log);
  int tries = 0, after = 0;
  scribe.post([&] {
    if (++tries < 3) throw SystemError("write metrics", EIO);
  });
  scribe.post([&] { after = tries; });
  EXPECT_TRUE(scribe.drain(Deadline::after(std::chrono::minutes(1))));
  EXPECT_EQ(after, 3);
  scribe.check();
  EXPECT_NE(log.warnings().find("trying again"), std::string::npos);
}

TEST(Scribe, DropsWhatIsRefusedForGoodAndGoesOn) {
  MemoryLog log;
  Scribe scribe(log, {.patience = std::chrono::milliseconds(100)});
  bool after = false;
  for (int i = 0; i < 2; ++i) scribe.post([] { throw SystemError("write metrics", ENOSPC); });
  scribe.post([&] { after = true; });
  EXPECT_TRUE(scribe.drain(Deadline::after(std::chrono::minutes(1))));
  EXPECT_TRUE(after);
  EXPECT_THROW(scribe.check(), SystemError);
  scribe.check();  // told once
}

TEST(Scribe, NobodyWaitsForAnEntryThatHangs) {
  NullLog log;
  std::atomic<bool> go_on{false};
  Scribe scribe(log);
  scribe.post([&] {
    while (!go_on) std::this_thread::yield();
  });
  scribe.post([] {});
  EXPECT_FALSE(scribe.idle());
  EXPECT_FALSE(scribe.drain(Deadline::after(std::chrono::milliseconds(20))));
  go_on = true;
  EXPECT_TRUE(scribe.drain(Deadline::never()));
}

}  // namespace
}  // namespace dtrain
