// The thread that writes records: order, entries that are refused for a while or for good, waiting.
#include "runtime/base/files/background_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "runtime/base/error.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

using test::MemoryLog;

TEST(BackgroundWriter, WritesInOrderBesideTheCaller) {
  NullLog log;
  std::vector<int> written;
  {
    BackgroundWriter writer(log);
    for (int i = 0; i < 1000; ++i) writer.post([&written, i] { written.push_back(i); });
    EXPECT_TRUE(writer.drain(Deadline::after(std::chrono::minutes(1))));
    EXPECT_TRUE(writer.idle());
    ASSERT_EQ(written.size(), 1000U);
    writer.post([&] { written.push_back(1000); });
  }
  for (std::size_t i = 0; i < written.size(); ++i) EXPECT_EQ(written[i], static_cast<int>(i));
  EXPECT_EQ(written.size(), 1001U);
}

TEST(BackgroundWriter, TriesAgainWhatIsRefused) {
  MemoryLog log;
  BackgroundWriter writer(log);
  int tries = 0, after = 0;
  writer.post([&] {
    if (++tries < 3) throw SystemError("write metrics", EIO);
  });
  writer.post([&] { after = tries; });
  EXPECT_TRUE(writer.drain(Deadline::after(std::chrono::minutes(1))));
  EXPECT_EQ(after, 3);
  writer.check();
  EXPECT_NE(log.warnings().find("trying again"), std::string::npos);
}

TEST(BackgroundWriter, DropsWhatIsRefusedForGoodAndGoesOn) {
  MemoryLog log;
  BackgroundWriter writer(log, {.patience = std::chrono::milliseconds(100)});
  bool after = false;
  for (int i = 0; i < 2; ++i) writer.post([] { throw SystemError("write metrics", ENOSPC); });
  writer.post([&] { after = true; });
  EXPECT_TRUE(writer.drain(Deadline::after(std::chrono::minutes(1))));
  EXPECT_TRUE(after);
  EXPECT_THROW(writer.check(), SystemError);
  writer.check();  // told once
}

TEST(BackgroundWriter, NobodyWaitsForAnEntryThatHangs) {
  NullLog log;
  std::atomic<bool> go_on{false};
  BackgroundWriter writer(log);
  writer.post([&] {
    while (!go_on) std::this_thread::yield();
  });
  writer.post([] {});
  EXPECT_FALSE(writer.idle());
  EXPECT_FALSE(writer.drain(Deadline::after(std::chrono::milliseconds(20))));
  go_on = true;
  EXPECT_TRUE(writer.drain(Deadline::never()));
}

}  // namespace
}  // namespace dtrain
