// A live report gives nothing to who has no token or came by another machine's name, and something new when
// there is.
#include "worker/report/live_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "runtime/metrics/metrics_log.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::TempDir;
using testing::HasSubstr;

constexpr const char* kToken = "0123456789abcdef";

TEST(LivePages, HostsAreThisMachineByItsOwnAddress) {
  for (const char* own : {"127.0.0.1", "127.0.0.1:6007", "localhost:80", "localhost", "[::1]:9", "[::1]"})
    EXPECT_TRUE(is_loopback_host(own)) << own;
  for (const char* other : {"", "evil.example", "evil.example:6007", "127.0.0.1.evil.example",
                            "localhost.evil", "[::2]:1", "[::1]x", "0.0.0.0:1", "user@127.0.0.1"})
    EXPECT_FALSE(is_loopback_host(other)) << other;
}

TEST(LivePages, SecretsAreTheSameOnlyWhole) {
  EXPECT_TRUE(same_secret(kToken, kToken));
  for (const char* other : {"", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0",
                            "x123456789abcdef", "0123456789abcdef0123456789abcdef"})
    EXPECT_FALSE(same_secret(kToken, other)) << other;
  EXPECT_FALSE(same_secret("", "x"));
}

class Live : public ::testing::Test {
 protected:
  void line(int step) {
    std::ofstream(folder_ / "metrics.jsonl", std::ios::app)
        << format_record(StepRecord{step, 0, 1.0 / step, 0.1, 10}) << "\n";
  }
  LiveAnswer ask(const std::string& path, const std::string& token = kToken,
                 const std::string& host = "127.0.0.1:1", const std::string& after = "") {
    return pages_.answer({host, path, token, after});
  }

  TempDir folder_;
  LivePages pages_{{folder_.path()}, kToken};
};

TEST_F(Live, StrangersGetOneLine) {
  line(1);
  for (const char* path : {"/", "/data.json", "/nothing"}) {
    for (const LiveAnswer& refused :
         {ask(path, ""), ask(path, "wrong"), ask(path, kToken, "evil.example:1"), ask(path, kToken, "")}) {
      EXPECT_EQ(refused.status, 403);
      EXPECT_THAT(refused.body, HasSubstr("dtrain report --watch printed"));
      EXPECT_EQ(std::count(refused.body.begin(), refused.body.end(), '\n'), 1);
      EXPECT_TRUE(refused.version.empty());
    }
  }
}

TEST_F(Live, ThePageAndItsDataGrow) {
  line(1);
  const LiveAnswer page = ask("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, HasSubstr("\"live\":true"));
  const LiveAnswer data = ask("/data.json");
  EXPECT_EQ(data.status, 200);
  EXPECT_THAT(data.body, HasSubstr("\"last_step\":1"));
  EXPECT_EQ(ask("/data.json", kToken, "localhost", data.version).status, 204);
  line(2);
  const LiveAnswer more = ask("/data.json", kToken, "localhost", data.version);
  EXPECT_EQ(more.status, 200);
  EXPECT_THAT(more.body, HasSubstr("\"last_step\":2"));
  EXPECT_NE(more.version, data.version);
  EXPECT_EQ(ask("/favicon.ico").status, 404);
}

TEST_F(Live, AFileThatCannotBeReadIsAnAnswer) {
  std::filesystem::create_directory(folder_ / "metrics.jsonl");
  const LiveAnswer answer = ask("/");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("metrics.jsonl"));
}

}  // namespace
}  // namespace dtrain
