// metrics.jsonl and the run's folder: exact numbers, one line a record, one record a step whatever was
// killed.
#include "runtime/metrics/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/run_directory.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::HasSubstr;

StepRecord step(std::int64_t number) { return {number, 0, 0.5, 0.1, 100}; }

// As start `start` of the run writes it.
std::string line(const std::string& record, int start = 1) {
  return record.substr(0, record.size() - 1) + ",\"start\":" + std::to_string(start) + "}\n";
}
std::string line(std::int64_t number, int start = 1) { return line(format_record(step(number)), start); }

const EvalRecord kEval{2, 0.25, {{"accuracy", 0.875}}, 10000};
const std::string kEvalText = R"({"event":"eval","epoch":2,"loss":0.25,"accuracy":0.875,"samples":10000})";
const std::string kEvalLine = line(kEvalText);

TEST(MetricsLog, LinesAreExactlyTheDocumentedOnes) {
  EXPECT_EQ(
      format_record(StepRecord{1, 0, 2.3025850929940455, 0.2, 61234.5}),
      R"({"event":"step","step":1,"epoch":0,"loss":2.3025850929940455,"lr":0.2,"samples_per_second":61234.5})");
  EXPECT_THAT(format_record(StepRecord{1, 0, 2.5, 0.2, 61234.5, 1767322845.25}),
              HasSubstr(R"("samples_per_second":61234.5,"time":1767322845.250000})"));
  EXPECT_EQ(format_record(kEval), kEvalText);
  EXPECT_EQ(format_record(SampleRecord{20, "a \"b\"\nc \xff"}),
            "{\"event\":\"sample\",\"step\":20,\"text\":\"a \\\"b\\\"\\nc \xef\xbf\xbd\"}");
}

TEST(MetricsLog, MemoryIsThereWhenItIsTold) {
  StepRecord record = step(1);
  EXPECT_THAT(format_record(record), testing::Not(HasSubstr("bytes")));
  record.memory = MemoryUse{100, 200, 3'000'000'000, 4'000'000'000};
  EXPECT_THAT(format_record(record),
              HasSubstr(R"("samples_per_second":100.0,"allocated_bytes":100,"peak_allocated_bytes":200,)"
                        R"("resident_bytes":3000000000,"peak_resident_bytes":4000000000})"));
}

TEST(MetricsLog, NumbersReadBackExactly) {
  for (const double value :
       {0.1, 1.0 / 3, static_cast<double>(0.1F), 5e-324, 1.7976931348623157e308, -0.0, 1e22, 3.0}) {
    const std::string text = format_record(StepRecord{1, 0, value, 0, 0});
    const double back = std::strtod(text.c_str() + text.find("\"loss\":") + 7, nullptr);
    EXPECT_EQ(back, value) << text;
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
  EXPECT_THAT(format_record(StepRecord{1, 0, std::nan(""), 0, 0}), HasSubstr(R"("loss":null)"));
  EXPECT_THAT(format_record(StepRecord{1, 0, -std::numeric_limits<double>::infinity(), 0, 0}),
              HasSubstr(R"("loss":null)"));
}

TEST(MetricsLog, AppendsAndCutsATornLine) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsLog log(path, 1);
    log.write(step(1));
    log.write(kEval);
    log.sync();
  }
  test::write_file(path, test::read_file(path) + R"({"event":"st)");
  MetricsLog log(path, 1);
  log.write(step(2));
  EXPECT_EQ(test::read_file(path), line(1) + kEvalLine + line(2));
}

TEST(OpenLines, CutWhatAKillHasTornHoweverLongItIs) {
  const TempDir folder;
  const auto path = folder / "samples.jsonl";
  for (const std::string& whole : {std::string(), std::string("one\n"), std::string(9000, 'a') + "\n"}) {
    for (const std::size_t torn : {0U, 1U, 4095U, 4096U, 4097U, 20'000U}) {
      test::write_file(path, whole + std::string(torn, 'x'));
      append_whole(open_lines(path).get(), "next\n", path);
      EXPECT_EQ(test::read_file(path), whole + "next\n") << whole.size() << " and " << torn;
    }
  }
}

TEST(MetricsLog, EachStepOnceAfterAResume) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsLog log(path, 1);
    for (int i = 1; i <= 5; ++i) log.write(step(i));
    log.write(kEval);
    for (int i = 6; i <= 8; ++i) log.write(step(i));
  }
  MetricsLog log(path, 1);
  log.truncate_after(6, {});
  for (int i = 7; i <= 9; ++i) log.write(step(i));
  EXPECT_EQ(test::read_file(path), line(1) + line(2) + line(3) + line(4) + line(5) + kEvalLine + line(6) +
                                       line(7) + line(8) + line(9));
  log.truncate_after(0, {});
  EXPECT_EQ(test::read_file(path), "");
}

TEST(MetricsLog, AnEvaluationDoneTwiceAppearsOnce) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  EvalRecord other = kEval;
  other.epoch = 3;
  {
    MetricsLog log(path, 1);
    log.write(step(1));
    log.write(kEval);
  }
  {
    MetricsLog log(path, 1);
    log.truncate_after(1, {});
    log.write(kEval);  // the resumed run evaluates at its first step's start again
    log.write(other);
    log.write(step(2));
    log.write(other);  // not a repetition any more
  }
  EXPECT_EQ(test::read_file(path),
            line(1) + kEvalLine + line(format_record(other)) + line(2) + line(format_record(other)));
}

// Start 1 continued to write when start 2 had already resumed after step 2; start 3 resumes after step 4.
TEST(MetricsLog, LinesOfASupersededStartCountForNothing) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  const std::string run = line(1) + line(2) + line(3, 2) + line(9) + line(4, 2);
  test::write_file(path, run + line(5, 2) + line(10));
  for (const int after : {0, 2, 4}) RunGenerations::read(folder.path()).begin(folder.path(), after);
  MetricsLog log(path, 3);
  log.truncate_after(4, RunGenerations::read(folder.path()));
  log.write(step(5));
  EXPECT_EQ(test::read_file(path), run + line(5, 3));
}

// Start 2 was killed when it had said that it resumes after step 1 and had not cut the log yet.
TEST(MetricsLog, TheNextStartMakesUpForACutThatWasNotMade) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  const std::string eval = line(format_record(kEval));
  test::write_file(path, eval + line(1) + eval + line(2) + line(3) + eval + line(4) + eval);
  for (const int after : {0, 1, 1}) RunGenerations::read(folder.path()).begin(folder.path(), after);
  MetricsLog log(path, 3);
  log.truncate_after(1, RunGenerations::read(folder.path()));
  EXPECT_EQ(test::read_file(path), eval + line(1) + eval);
  log.write(kEval);
  log.write(step(2));
  EXPECT_EQ(test::read_file(path), eval + line(1) + eval + line(2, 3));
}

TEST(MetricsLog, KeepsWhatItDoesNotKnow) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  const std::string odd = "not json\n[1]\n{\"event\":5}\n{\"step\":9}\n\n";
  test::write_file(path, odd + line(1) + odd + line(2) + odd);
  MetricsLog(path, 1).truncate_after(1, {});
  EXPECT_EQ(test::read_file(path), odd + line(1) + odd);
}

TEST(MetricsLog, AFullDiskLeavesNoHalfLine) {
  const TempDir folder;
  const auto path = folder / "metrics.jsonl";
  const auto codes = test::run_ranks(1, [&](int) {
    MetricsLog log(path, 1);
    log.write(step(1));
    // A file size limit stands in for the full disk: the write is short, then refused.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{line(1).size() + 20, line(1).size() + 20};
    check(Sys{::setrlimit(RLIMIT_FSIZE, &limit)}, "setrlimit");
    EXPECT_THROW(log.write(step(2)), SystemError);
    if (testing::Test::HasFailure()) throw Error("no error");
  });
  EXPECT_EQ(codes, std::vector<int>{0});
  EXPECT_EQ(test::read_file(path), line(1));
}

TEST(MetricsLog, SaysWhereItCannotWrite) {
  const TempDir folder;
  EXPECT_THROW(MetricsLog(folder / "absent" / "metrics.jsonl", 1), SystemError);
}

TEST(RunDirectory, HasTheDocumentedNames) {
  const TempDir folder;
  const auto run = RunDirectory::create(folder / "runs" / "one");
  EXPECT_TRUE(fs::is_directory(folder / "runs/one/checkpoints"));
  EXPECT_TRUE(fs::is_directory(folder / "runs/one/logs"));
  run.write_config("{\"lr\":1}");
  run.write_summary("{}\n");
  EXPECT_EQ(test::read_file(folder / "runs/one/config.json"), "{\"lr\":1}\n");
  EXPECT_EQ(test::read_file(folder / "runs/one/summary.json"), "{}\n");
  RunDirectory::create(folder / "runs" / "one");
  EXPECT_EQ(test::read_file(run.config()), "{\"lr\":1}\n") << "a run that is resumed keeps its files";
}

TEST(RunDirectory, SaysWhyItCannotBeUsed) {
  const TempDir folder;
  test::write_file(folder / "file", "x");
  try {
    RunDirectory::create(folder / "file");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("run directory: " + (folder / "file").string()));
    EXPECT_THAT(error.what(), HasSubstr("file in the way"));
  }
  try {
    RunDirectory::create("/proc/dtrain");
    FAIL() << "accepted";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("run directory: "));
    EXPECT_THAT(error.what(), HasSubstr("/proc/dtrain"));
  }
  EXPECT_THROW(RunDirectory::create(folder / "big", 1ULL << 60), SystemError);
}

TEST(RunDirectory, DefaultNamesAreFree) {
  const TempDir folder;
  std::tm when{};
  when.tm_year = 126, when.tm_mon = 0, when.tm_mday = 31, when.tm_hour = 14, when.tm_min = 25,
  when.tm_sec = 1;
  when.tm_isdst = -1;
  const std::time_t now = std::mktime(&when);
  EXPECT_EQ(RunDirectory::default_path("lenet", now), "runs/20260131-142501-lenet");
  fs::create_directories(folder / "20260131-142501-lenet");
  EXPECT_EQ(RunDirectory::default_path("lenet", now, folder.path()), folder / "20260131-142501-lenet-2");
}

TEST(ReplaceFile, IsWholeForAnyNumberOfThreads) {
  const TempDir folder;
  const std::string contents[] = {std::string(1 << 16, 'a'), std::string(1 << 10, 'b'), "c"};
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (const std::string& content : contents) {
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < 20; ++i) replace_file(folder / "a", content);
      } catch (const Error&) {
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(std::ranges::count(contents, test::read_file(folder / "a")), 1);
}

TEST(ReplaceFile, KeepsTheOldOneWhenItFails) {
  const TempDir folder;
  replace_file(folder / "a.json", "one");
  replace_file(folder / "a.json", "two");
  EXPECT_EQ(test::read_file(folder / "a.json"), "two");
  fs::create_directories(folder / "folder");
  EXPECT_THROW(replace_file(folder / "folder", "x"), SystemError);
  EXPECT_THROW(replace_file(folder / "none" / "x", "x"), SystemError);
  int left = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++left;
  EXPECT_EQ(left, 2) << "a temporary file was left";
}

}  // namespace
}  // namespace dtrain
