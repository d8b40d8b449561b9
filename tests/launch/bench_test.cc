// `dtrain bench` as users start it: alone, by dtrain-launch, under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/json.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

// The lines of the output, those that begin with `mark` left out, as words.
std::vector<Words> rows_of(const std::string& text, char mark) {
  std::vector<Words> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == mark) continue;
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return rows;
}

void expect_table(const RunResult& result, const std::string& backend) {
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("# all_reduce by " + backend + ", 2 workers"));
  EXPECT_THAT(result.out, ContainsRegex("size +count +type +redop +time +best +algbw +busbw +#wrong\n"));
  EXPECT_THAT(result.out, HasSubstr("wrong: 0\n"));
  const auto rows = rows_of(result.out, '#');
  ASSERT_EQ(rows.size(), 3U) << "rank 0 alone prints:\n" << result.out;
  std::size_t bytes = 1024;
  for (const Words& row : rows) {
    ASSERT_EQ(row.size(), 9U) << result.out;
    EXPECT_EQ(row[0], std::to_string(bytes));
    EXPECT_EQ(row[1], std::to_string(bytes / 8));
    EXPECT_EQ(row[2], "int64");
    EXPECT_GT(std::stod(row[4]), 0);
    EXPECT_LE(std::stod(row[5]), std::stod(row[4]));
    EXPECT_EQ(row[6], row[7]) << "of two workers each link carries the message once";
    EXPECT_EQ(row[8], "0");
    bytes *= 32;
  }
}

const Words kAllReduce = {"bench",       "allreduce",     "--max-bytes=1M",
                          "--factor=32", "--dtype=int64", "--iterations=5"};

RunResult start(Words command, const Words& arguments) {
  command.push_back(program("dtrain"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(command, limited_to(std::chrono::seconds(100)));
}

RunResult start_two(const Words& arguments) {
  return start({program("dtrain-launch"), "--nproc_per_node=2"}, arguments);
}

TEST(BenchAllReduce, ByDtrainLaunch) { expect_table(start_two(kAllReduce), "tcp"); }

TEST(BenchAllReduce, ByTheAlgorithmAskedFor) {
  Words arguments = kAllReduce;
  arguments.emplace_back("--allreduce=ring");
  const RunResult result = start_two(arguments);
  expect_table(result, "tcp");
  EXPECT_THAT(result.out, HasSubstr("\n# ring on 1 host x 2 ranks: ring\n"));
}

TEST(BenchAllReduce, WithoutSharedMemory) {
  const auto with = [](const std::string& value) {
    return start({"env", "DTRAIN_SHARED_MEMORY=" + value, program("dtrain-launch"), "--nproc_per_node=2"},
                 kAllReduce);
  };
  expect_table(with("0"), "tcp");
  const RunResult refused = with("off");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("DTRAIN_SHARED_MEMORY: expected 0 or 1, got 'off'"));
}

TEST(BenchAllReduce, UnderMpirun) {
  if (start({}, {"--version"}).out.find("MPI") == std::string::npos) GTEST_SKIP() << "built without MPI";
  if (run({"sh", "-c", "command -v mpirun && mpirun --version | grep -q 'Open MPI'"}).exit_code != 0)
    GTEST_SKIP() << "no Open MPI's mpirun in PATH";
  expect_table(start({"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"},
                     kAllReduce),
               "mpi");
}

TEST(BenchPredict, TakesTheLinksThatWereFitted) {
  const TempDir folder;
  const std::string file = folder / "within.json";
  Words arguments = kAllReduce;
  arguments.push_back("--fit=" + file);
  const RunResult fitted = start_two(arguments);
  expect_table(fitted, "tcp");
  EXPECT_THAT(fitted.out, ContainsRegex("within.json: latency .* us, .* GB/s; the model is within .* %"));
  const auto link = test::Json::read(file);
  EXPECT_EQ(link["link"], "within a host");
  EXPECT_EQ(link["ranks"], 2);

  const RunResult predicted = start({}, {"bench", "predict", "--nodes=5", "--nproc-per-node=2",
                                         "--costs=" + file, "--gradients=1M", "--step-ms=100"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const auto rows = rows_of(predicted.out, '#');
  ASSERT_EQ(rows.size(), 5U) << "a heading, 1, 2, 4 and 5 nodes:\n" << predicted.out;
  EXPECT_EQ(rows[1][2], "direct");
  EXPECT_EQ(rows[4][0], "5");
  EXPECT_EQ(rows[4][1], "10");
  EXPECT_EQ(rows[4][2], "hierarchical");
  EXPECT_GT(std::stod(rows[4][3]), std::stod(rows[2][3]));
}

TEST(BenchAllReduce, AloneInJson) {
  const RunResult result =
      start({}, {"bench", "allreduce", "--min-bytes=100", "--max-bytes=100", "--dtype=bfloat16", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = test::Json::parse(result.out);
  EXPECT_EQ(json["count"], 50);
  EXPECT_EQ(json["world_size"], 1);
  EXPECT_EQ(json["wrong"], 0);
}

TEST(BenchAllReduce, RefusesWhatItCannotMeasure) {
  const auto refusal = [](const Words& arguments) {
    Words all = {"bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const RunResult result = start({}, all);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(refusal({"allreduce", "--min-bytes=1X"}), ContainsRegex("--min-bytes.*512, 4K.*1X"));
  EXPECT_THAT(refusal({"allreduce", "--max-bytes=1"}), ContainsRegex("--max-bytes.*at least --min-bytes 1K"));
  EXPECT_THAT(refusal({"allreduce", "--factor=1"}), HasSubstr("--factor"));
  EXPECT_THAT(refusal({"allreduce", "--dtype=float23"}), HasSubstr("float32"));
  EXPECT_THAT(refusal({"allreduce", "--fit=x"}), ContainsRegex("--fit.*2 workers or more"));
  EXPECT_THAT(refusal({"predict", "--gradients=7X"}), HasSubstr("--gradients"));
  EXPECT_THAT(refusal({"predict", "--costs=no-such-file"}), HasSubstr("no-such-file"));
  EXPECT_THAT(refusal({"step", "--by=line"}), HasSubstr("--by"));
  EXPECT_THAT(refusal({"nothing"}), HasSubstr("expected allreduce, predict or step, got 'nothing'"));
  EXPECT_THAT(refusal({}), HasSubstr("got nothing"));
}

TEST(BenchStep, TwoWorkersSayHowMuchIsHidden) {
  if (start({}, {"--version"}).out.find("Gloo") == std::string::npos) GTEST_SKIP() << "built without Gloo";
  const RunResult result =
      start_two({"bench", "step", "--dataset=synthetic:1x28x28,10,100", "--batch-size=4", "--iterations=2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* row : {"forward +conv ", "backward +conv ", "communication +all-reduce, waited ",
                          "optimizer +optimizer ", "step +1.0 .*100.0%"})
    EXPECT_THAT(result.out, ContainsRegex(row));
  EXPECT_THAT(result.out, ContainsRegex("compute alone .* communication alone .* hidden\n"));
}

TEST(BenchStep, AloneInJsonByKernel) {
  const RunResult result = start({}, {"bench", "step", "--model=mlp", "--dataset=synthetic:1x8x8,10,100",
                                      "--batch-size=4", "--iterations=2", "--by=kernel", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  double share = 0;
  test::Json last;
  for (std::string line; std::getline(lines, line);) {
    last = test::Json::parse(line);
    if (last.contains("share")) share += last["share"].number();
  }
  EXPECT_NEAR(share, 1, 1e-6) << "the rows are the step";
  EXPECT_EQ(last["model"], "mlp");
  EXPECT_EQ(last["batch_per_worker"], 4);
  EXPECT_GT(last["step_ms"], 0);
  EXPECT_FALSE(last.contains("hidden_share"));
}

}  // namespace
}  // namespace dtrain::test
