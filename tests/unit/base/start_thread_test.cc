// A thread that a limit leaves no room for: the error says which thread and which limits.
#include "runtime/base/start_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "tests/support/few_threads.h"

namespace dtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(StartThread, HasItsName) {
  std::array<char, 16> name{};
  start_thread("dtrain-test", [&] {
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  }).join();
  EXPECT_STREQ(name.data(), "dtrain-test");
}

TEST(StartThread, SaysWhichAndWhatLimitsIt) {
  const auto said = test::said_with_few_threads(0, [] { start_thread("dtrain-test", [] {}).join(); });
  if (!said) GTEST_SKIP() << "needs root, to become a user without other processes";
  EXPECT_THAT(*said, AllOf(HasSubstr("SystemError"), HasSubstr("start the thread dtrain-test"),
                           HasSubstr("ulimit -u"), HasSubstr("(errno 11)")));
}

}  // namespace
}  // namespace dtrain
