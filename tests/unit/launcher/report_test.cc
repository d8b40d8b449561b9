// What the failure report says, and where it looks for causes.
#include "launcher/output/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

FailedWorker failure_with(int status) {
  FailedWorker failure;
  failure.rank = 5;
  failure.local_rank = 1;
  failure.host = "box";
  failure.pid = 42;
  failure.status = status;
  failure.program = "/bin/prog";
  return failure;
}

TEST(Report, OneLineNamesRankHostAndCause) {
  EXPECT_EQ(failure_line(failure_with(7 << 8)),
            "rank 5 (host box, local rank 1, pid 42) failed first: exit code 7");
  EXPECT_THAT(failure_line(failure_with(SIGSEGV)), AllOf(HasSubstr("SIGSEGV"), HasSubstr("signal 11")));
}

TEST(Report, OfManyNodesTheOneIsNamed) {
  FailedWorker failure = failure_with(7 << 8);
  failure.node_rank = 2;
  EXPECT_EQ(failure_line(failure),
            "rank 5 (node_rank 2, host box, local rank 1, pid 42) failed first: exit code 7");
}

TEST(Report, OutOfMemoryIsSaid) {
  FailedWorker failure = failure_with(SIGKILL);
  failure.out_of_memory = true;
  failure.max_rss_kib = 3 << 20;
  EXPECT_THAT(failure_line(failure), HasSubstr("out of memory"));
  EXPECT_THAT(failure_report(failure)[1], HasSubstr("3.00 GiB"));
}

TEST(Report, FailedExecSaysWhy) {
  FailedWorker failure = failure_with(127 << 8);
  failure.exec_error = ENOEXEC;
  EXPECT_THAT(failure_line(failure), AllOf(HasSubstr("cannot start /bin/prog"), HasSubstr("Exec format")));
}

TEST(Report, LastWordsAndLogAreListed) {
  FailedWorker failure = failure_with(1 << 8);
  failure.last_lines = {"one", "two"};
  failure.log_file = "/logs/x";
  failure.error_text = "ValueError: no";
  const auto report = failure_report(failure);
  EXPECT_THAT(report,
              ::testing::ElementsAre(HasSubstr("rank 5"), "its error: ValueError: no",
                                     "its last lines on stderr:", "    one", "    two", "its log: /logs/x"));
}

TEST(Report, ReadsElasticErrorFiles) {
  const test::TempDir folder;
  const auto read = [&](const std::string& text) {
    test::write_file(folder / "e.json", text);
    return read_error_file(folder / "e.json");
  };
  EXPECT_EQ(read(R"({"message": {"message": "RuntimeError: boom", "extraInfo": {"timestamp": "1"}}})"),
            "RuntimeError: boom");
  EXPECT_EQ(read(R"({"message": "plain\nsecond line"})"), "plain");
  EXPECT_EQ(read("{"), "");
  EXPECT_EQ(read("[]"), "");
  EXPECT_EQ(read(R"({"message": 3})"), "");
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read_error_file(folder / "missing"), "");
}

TEST(Report, TheControlGroupsCountDecides) {
  EXPECT_TRUE(oom_since({1, 5}, {2, 6}));
  EXPECT_FALSE(oom_since({1, 5}, {1, 6})) << "somebody else's process was killed";
  EXPECT_TRUE(oom_since({std::nullopt, 5}, {std::nullopt, 6}));
  EXPECT_FALSE(oom_since({std::nullopt, std::nullopt}, {1, 6}));
}

TEST(Report, AStoreThatNobodyServesIsSaid) {
  const auto advised = [](const std::string& line, const std::string& master) {
    FailedWorker failure = failure_with(1 << 8);
    failure.master = master;
    failure.last_lines = {"Traceback", line, "more"};
    for (const std::string& text : failure_report(failure)) {
      if (text.find("10.0.0.1:29500 (MASTER_ADDR, MASTER_PORT): rank 0 opens that port") != std::string::npos)
        return true;
    }
    return false;
  };
  const std::string master = "10.0.0.1:29500";
  EXPECT_TRUE(advised("ConnectionRefusedError: [Errno 111] Connection refused", master));
  // As PyTorch says it.
  EXPECT_TRUE(
      advised("torch.distributed.DistNetworkError: The client socket has timed out after 5000ms while "
              "trying to connect to (10.0.0.1, 29500).",
              master));
  EXPECT_FALSE(advised("ConnectionRefusedError: [Errno 111] Connection refused", "")) << "the launcher's";
  EXPECT_FALSE(advised("x timed out while trying to connect to (10.0.0.1, 8080)", master));
  EXPECT_FALSE(advised("broken pump", master));
}

}  // namespace
}  // namespace dtrain::launcher
