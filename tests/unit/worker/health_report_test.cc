// Who of many workers is out of line, and the table that says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "runtime/base/error.h"
#include "worker/health/health_report.h"
#include "worker/health/measure.h"

namespace dtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Healthy workers a, b, c, …, each a little different.
std::vector<HealthReport> healthy(int workers) {
  std::vector<HealthReport> reports;
  for (int rank = 0; rank < workers; ++rank) {
    HealthReport report;
    report.rank = rank;
    report.host = std::string(1, static_cast<char>('a' + rank));
    report.device = "NVIDIA H100";
    const double noise = 1 + 0.05 * (rank % 3 - 1);
    report[Metric::matmul] = 1e11 * noise;
    report[Metric::memory_copy] = 1e10 * noise;
    report[Metric::memory_free] = 64e9 * noise;
    report[Metric::disk_write] = 500e6 * noise;
    report[Metric::disk_free] = 1e12 / (rank + 1);  // as one likes
    report[Metric::link] = 1.2e9 * noise;
    report[Metric::clock] = 0.002 * rank;
    reports.push_back(report);
  }
  return reports;
}

std::vector<std::string> texts_of(const std::vector<HealthReport>& reports) {
  std::vector<std::string> texts;
  for (const Outlier& outlier : find_outliers(reports)) texts.push_back(text_of(outlier, reports));
  return texts;
}

TEST(HealthReport, NobodyIsNamedWhereAllAreAlike) {
  for (const int workers : {1, 2, 3, 8}) EXPECT_THAT(texts_of(healthy(workers)), IsEmpty()) << workers;
}

TEST(HealthReport, NamesASlowDiskHalfABandwidthAWrongClockAndASlowProcessor) {
  auto reports = healthy(4);
  reports[1][Metric::disk_write] = 12e6;
  reports[2][Metric::link] = 0.6e9;
  reports[3][Metric::clock] = -90;
  reports[0][Metric::matmul] = 0.7e11;
  EXPECT_THAT(texts_of(reports), ElementsAre("rank 0 (host a): matmul 70 GFLOP/s, the median is 97.5 GFLOP/s",
                                             "rank 1 (host b): disk write 12 MB/s, the median is 475 MB/s",
                                             "rank 2 (host c): link 600 MB/s, the median is 1140 MB/s",
                                             "rank 3 (host d): clock -90.000 s, the median is +0.001 s"));
}

// Of each node the first worker has it.
TEST(HealthReport, NamesTheNodeWhoseGpusReduceSlowly) {
  auto reports = healthy(6);
  for (const int first : {0, 2, 4}) reports[static_cast<std::size_t>(first)][Metric::gpu_all_reduce] = 3e11;
  EXPECT_THAT(texts_of(reports), IsEmpty());
  reports[2][Metric::gpu_all_reduce] = 1.9e11;
  EXPECT_THAT(texts_of(reports),
              ElementsAre("rank 2 (host c): GPU all_reduce 190 GB/s, the median is 300 GB/s"));
  EXPECT_TRUE(spec_of(Metric::gpu_all_reduce).decides);
  for (HealthReport& report : reports) report.device = "emulated GPU 0";
  EXPECT_THAT(texts_of(reports), IsEmpty()) << "processors, which other programs use too";
  reports[2][Metric::gpu_all_reduce] = 0.7e11;
  EXPECT_THAT(texts_of(reports), ElementsAre(HasSubstr("rank 2 (host c): GPU all_reduce 70 GB/s")));
}

TEST(HealthReport, AProcessorMayBeBusyWithOtherPrograms) {
  auto reports = healthy(4);
  for (HealthReport& report : reports) report.device = "cpu (oneDNN 2.6.3, avx2)";
  reports[0][Metric::matmul] = 0.6e11;
  EXPECT_THAT(texts_of(reports), IsEmpty());
  reports[0][Metric::matmul] = 0.4e11;
  EXPECT_THAT(texts_of(reports), ElementsAre(HasSubstr("rank 0 (host a): matmul 40 GFLOP/s")));
}

TEST(HealthReport, OfTwoItCannotBeToldWhoseLinkOrClockIsWrong) {
  auto reports = healthy(2);
  reports[1][Metric::link] = 1e6;
  reports[1][Metric::clock] = 90;
  EXPECT_THAT(texts_of(reports), IsEmpty());
  reports[1][Metric::disk_write] = 10e6;
  EXPECT_THAT(texts_of(reports), ElementsAre(HasSubstr("rank 1 (host b): disk write 10 MB/s")));
}

TEST(HealthReport, WhatANodesOtherWorkersDoNotMeasureIsNoOutlier) {
  auto reports = healthy(4);
  for (const int rank : {1, 3}) reports[static_cast<std::size_t>(rank)][Metric::disk_write] = std::nan("");
  EXPECT_THAT(texts_of(reports), IsEmpty());
  EXPECT_THAT(health_table(reports, 0), HasSubstr(" -  "));
}

TEST(HealthReport, GoesThroughJson) {
  HealthReport report = healthy(2)[1];
  report[Metric::link] = std::nan("");
  report.bad = {{"disk", Verdict::bad, "no \"space\"\n", "free some"}};
  const HealthReport back = health_from_json(to_json(report));
  EXPECT_EQ(back.rank, 1);
  EXPECT_EQ(back.host, "b");
  EXPECT_DOUBLE_EQ(back[Metric::matmul], report[Metric::matmul]);
  EXPECT_TRUE(std::isnan(back[Metric::link]));
  ASSERT_EQ(back.bad.size(), 1U);
  EXPECT_EQ(back.bad[0].text, "no \"space\"\n");
  for (const char* wrong : {"", "[]", "{}", R"({"rank":"0","host":"a","device":"cpu","bad":[]})"})
    EXPECT_THROW(health_from_json(wrong), DataError) << wrong;
}

TEST(HealthTable, MarksOutliersAndSaysBadThingsOncePerHost) {
  auto reports = healthy(3);
  reports[1][Metric::disk_write] = 12e6;
  reports[1].bad = reports[2].bad = {{"gpu 0", Verdict::bad, "is gone", "reboot"}};
  reports[2].host = "b";
  const std::string table = health_table(reports, 0);
  EXPECT_THAT(table,
              AllOf(HasSubstr("12*"), HasSubstr("* rank 1 (host b): disk write 12 MB/s, the median is"),
                    HasSubstr("BAD rank 1 (host b): gpu 0: is gone\n    -> reboot\n"),
                    Not(HasSubstr("BAD rank 2")), HasSubstr("1 BAD")));
}

TEST(HealthTable, FitsTheTerminal) {
  const auto reports = healthy(3);
  for (const std::size_t width : {30U, 40U, 60U, 80U}) {
    const std::string table = health_table(reports, width);
    std::istringstream lines(table);
    int headings = 0;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), width) << table;
      headings += line.find("rank") != std::string::npos ? 1 : 0;
    }
    EXPECT_GE(headings, width < 80 ? 2 : 1) << "each block says which worker a row is";
    for (const char* heading : {"matmul GFLOP/s", "disk MB/s", "clock s", "device"})
      EXPECT_THAT(table, HasSubstr(heading)) << width;
  }
}

TEST(Links, AreMeasuredByOneWorkerOfEachHost) {
  EXPECT_THAT(ends_of_links({"a", "a", "b", "b", "c", "c"}), ElementsAre(0, 2, 4));
  EXPECT_THAT(ends_of_links({"a", "b", "a", "c"}), ElementsAre(0, 1, 3));
  EXPECT_THAT(ends_of_links({"a", "a", "a"}), ElementsAre(0, 1, 2)) << "what they share is all there is";
}

TEST(Rounds, EachMeetsEveryOtherOnce) {
  for (const int size : {2, 3, 4, 5, 7, 8}) {
    std::set<std::pair<int, int>> met;
    const int rounds = size - 1 + size % 2;
    for (int round = 0; round < rounds; ++round) {
      for (int rank = 0; rank < size; ++rank) {
        const int partner = partner_in_round(rank, size, round);
        if (partner < 0) continue;
        EXPECT_NE(partner, rank);
        EXPECT_EQ(partner_in_round(partner, size, round), rank) << size << " " << round;
        const bool is_new = rank > partner || met.emplace(rank, partner).second;
        EXPECT_TRUE(is_new) << rank << " and " << partner << " meet twice";
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(size * (size - 1) / 2)) << size;
  }
}

}  // namespace
}  // namespace dtrain
