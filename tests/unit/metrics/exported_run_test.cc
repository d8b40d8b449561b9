// Runs as MLflow's and W&B's files: parameters, curves and what came of them. What reads them there is tried
// in tests/strangers/trackers.py.
#include "runtime/metrics/export/exported_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class ExportedRunTest : public testing::Test {
 protected:
  ExportedRunTest() {
    fs::create_directories(folder_ / "first");
    test::write_file(folder_ / "first/config.json",
                     R"({"options": {"lr": {"value": "0.1", "source": "flag"}, "model": {"value": "lenet's"}},
                         "machine": {"host": "node7"}})");
    test::write_file(folder_ / "first/summary.json", R"({"status": "finished"})");
    std::string lines;
    for (int step = 1; step <= kSteps; ++step) {
      lines += R"({"event":"step","step":)" + std::to_string(step) + R"(,"epoch":0,"loss":)" +
               (step == 3 ? "null" : std::to_string(1.0 / step)) +
               R"(,"lr":0.1,"samples_per_second":100,"time":)" + std::to_string(1700000000 + step) +
               R"(,"start":1})" + "\n";
    }
    lines += R"({"event":"eval","epoch":0,"loss":0.25,"accuracy":0.875,"samples":10,"start":1})"
             "\n";
    test::write_file(folder_ / "first/metrics.jsonl", lines);
  }
  ExportedRun read() const { return read_exported_run(RunDirectory(folder_ / "first"), "dtrain 9.9"); }

  static constexpr int kSteps = 900;  // more than a block of the log holds
  test::TempDir folder_;
};

const std::vector<ExportedPoint>& curve_of(const ExportedRun& run, const std::string& name) {
  for (const auto& [curve, points] : run.curves) {
    if (curve == name) return points;
  }
  throw UsageError("no curve " + name);
}

TEST_F(ExportedRunTest, HasWhatTheRunSaysOfItself) {
  const ExportedRun run = read();
  EXPECT_EQ(run.name, "first");
  EXPECT_EQ(run.id.size(), 32U);
  EXPECT_EQ(run.host, "node7");
  EXPECT_EQ(run.status, ExportedRun::Status::finished);
  EXPECT_THAT(run.parameters, ElementsAre(testing::Pair("lr", "0.1"), testing::Pair("model", "lenet's")));
  EXPECT_EQ(run.begin, 1700000001);
  EXPECT_EQ(run.end, 1700000000 + kSteps);
  const auto& loss = curve_of(run, "train/loss");
  ASSERT_EQ(loss.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(loss[1].value, 0.5);
  EXPECT_EQ(loss[1].time, 1700000002);
  EXPECT_TRUE(std::isnan(loss[2].value));
  EXPECT_EQ(curve_of(run, "test/accuracy").back().value, 0.875);
  EXPECT_EQ(read().id, run.id);
}

TEST_F(ExportedRunTest, MlflowGetsAFileForEachParameterAndMetric) {
  const fs::path written = write_mlflow(read(), folder_ / "mlruns", "it's an experiment");
  EXPECT_EQ(test::read_file(written / "params/model"), "lenet's");
  EXPECT_EQ(test::read_file(written / "tags/mlflow.runName"), "first");
  EXPECT_THAT(test::read_file(written / "metrics/train/loss"),
              testing::StartsWith("1700000001000 1 1\n1700000002000 0.5 2\n1700000003000 nan 3\n"));
  EXPECT_THAT(test::read_file(written / "meta.yaml"),
              testing::AllOf(HasSubstr("status: 3\n"), HasSubstr("run_name: 'first'")));
  EXPECT_THAT(test::read_file(written.parent_path() / "meta.yaml"),
              HasSubstr("name: 'it''s an experiment'\n"));
  EXPECT_TRUE(fs::exists(written / "artifacts/config.json"));
  // Once more is the same run, without what is no longer there.
  test::write_file(written / "params/old", "1");
  EXPECT_EQ(write_mlflow(read(), folder_ / "mlruns", "it's an experiment"), written);
  EXPECT_FALSE(fs::exists(written / "params/old"));
  EXPECT_THROW(write_mlflow(read(), folder_ / "mlruns", ""), UsageError);
}

/// The records of a log, put together from their pieces; checks each piece as LevelDB does.
std::vector<std::string> records_of(const std::string& log) {
  std::vector<std::string> records;
  std::string whole;
  std::size_t at = 7;
  while (at < log.size()) {
    if (32768 - at % 32768 < 7) {
      at += 32768 - at % 32768;
      continue;
    }
    std::uint32_t crc = 0;
    std::uint16_t length = 0;
    std::memcpy(&crc, log.data() + at, 4);
    std::memcpy(&length, log.data() + at + 4, 2);
    const char type = log.at(at + 6);
    EXPECT_LE(at % 32768 + 7 + length, 32768U);
    const auto* const bytes = reinterpret_cast<const Bytef*>(log.data() + at + 6);
    EXPECT_EQ(crc, ::crc32(::crc32(0, nullptr, 0), bytes, length + 1U)) << "at " << at;
    EXPECT_EQ(whole.empty(), type == 1 || type == 2);
    whole += log.substr(at + 7, length);
    if (type == 1 || type == 4) records.push_back(std::exchange(whole, ""));
    at += 7U + length;
  }
  EXPECT_TRUE(whole.empty());
  return records;
}

TEST_F(ExportedRunTest, WandbGetsALogOfRecords) {
  const fs::path written = write_wandb(read(), folder_.path(), "digits");
  EXPECT_EQ(written.parent_path(), folder_ / "wandb");
  EXPECT_THAT(written.filename().string(), testing::StartsWith("offline-run-20231114_221321-"));
  const std::string id = written.filename().string().substr(28);
  const std::string log = test::read_file(written / ("run-" + id + ".wandb"));
  EXPECT_EQ(log.substr(0, 7), std::string(":W&B\xe1\xbe\0", 7));
  ASSERT_GT(log.size(), 2 * 32768U);
  const auto records = records_of(log);
  ASSERT_EQ(records.size(), 2U + kSteps + 2U);  // header, run; summary, exit
  EXPECT_THAT(records[1], testing::AllOf(HasSubstr(id), HasSubstr("digits"), HasSubstr("\"lenet's\""),
                                         HasSubstr("node7")));
  EXPECT_THAT(records[3], testing::AllOf(HasSubstr("train/loss"), HasSubstr("0.5"), HasSubstr("_timestamp")));
  EXPECT_THAT(records[4], HasSubstr("\"NaN\""));
  EXPECT_THAT(records[records.size() - 2], testing::AllOf(HasSubstr("test/accuracy"), HasSubstr("0.875")));
}

TEST_F(ExportedRunTest, OtherFoldersAndFilesAreRefused) {
  EXPECT_THAT(test::message_of([&] { read_exported_run(RunDirectory(folder_ / "none"), ""); }),
              HasSubstr("expected the folder of a run, got one without config.json"));
  test::write_file(folder_ / "first/config.json", "[1]");
  EXPECT_THROW(read(), DataError);
  EXPECT_THROW(write_wandb({}, "/proc/nowhere", "p"), SystemError);
}

// A run that is still being trained, or was killed, has no summary.
TEST_F(ExportedRunTest, WithoutASummaryTheRunIsOpen) {
  fs::remove(folder_ / "first/summary.json");
  EXPECT_EQ(read().status, ExportedRun::Status::running);
  EXPECT_THAT(test::read_file(write_mlflow(read(), folder_ / "mlruns", "e") / "meta.yaml"),
              testing::AllOf(HasSubstr("status: 1\n"), HasSubstr("end_time: null\n")));
}

}  // namespace
}  // namespace dtrain
