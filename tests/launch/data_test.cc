// Every kind of data set, changed under a run in every way that matters: a run that is resumed, and workers
// that train together, either have the data they began with or are refused with what differs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

/// What happens to a data set's records.
enum class Change { none, grown, shrunk, value, rows, columns };

constexpr Change kAll[] = {Change::none,  Change::grown, Change::shrunk,
                           Change::value, Change::rows,  Change::columns};

constexpr std::size_t kRecords = 60, kOdd = 7, kOther = 31;

/// Record `i`: two numbers and their sum.
struct Row {
  float a = 0, b = 0;
  float sum() const { return a + b; }
};

std::vector<Row> rows(Change change) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < kRecords; ++i)
    rows.push_back({static_cast<float>(i * i % 17) / 8, static_cast<float>(i % 5) / 8});
  if (change == Change::grown) rows.push_back({1, 2});
  if (change == Change::shrunk) rows.pop_back();
  if (change == Change::value) rows[kOdd].a += 1;
  if (change == Change::rows) std::swap(rows[kOdd], rows[kOther]);
  return rows;
}

std::string csv(Change change) {
  const bool turned = change == Change::columns;
  std::string text = turned ? "b,sum,a\n" : "a,b,sum\n";
  for (const Row& row : rows(change)) {
    const auto line = [&text](float first, float second, float third) {
      text += std::to_string(first) + "," + std::to_string(second) + "," + std::to_string(third) + "\n";
    };
    turned ? line(row.b, row.sum(), row.a) : line(row.a, row.b, row.sum());
  }
  return text;
}

void write_csv(const fs::path& folder, Change change) { write_file(folder / "table.csv", csv(change)); }

/// The table that is trained on stays, the one that is held out changes.
void write_two_csv(const fs::path& folder, Change change) {
  write_file(folder / "table.csv", csv(Change::none));
  write_file(folder / "test.csv", csv(change));
}

void write_npy(const fs::path& folder, Change change) {
  std::vector<float> x, y;
  for (const Row& row : rows(change)) {
    x.insert(x.end(), {row.a, row.b});
    y.push_back(row.sum());
  }
  const std::string count = std::to_string(y.size());
  write_file(folder / "x.npy", npy_bytes("<f4", "(" + count + ", 2)", x));
  write_file(folder / "y.npy", npy_bytes("<f4", "(" + count + ",)", y));
}

/// `bytes` is made of records that begin at `first` and have `size` bytes each.
std::string changed(std::string bytes, std::size_t first, std::size_t size, Change change) {
  const auto at = [&](std::size_t record) { return first + record * size; };
  if (change == Change::grown) bytes += bytes.substr(at(kOdd), size);
  if (change == Change::shrunk) bytes.resize(bytes.size() - size);
  if (change == Change::value) bytes[at(kOdd) + 1] ^= 1;
  if (change == Change::rows) {
    const std::string odd = bytes.substr(at(kOdd), size), other = bytes.substr(at(kOther), size);
    bytes.replace(at(kOdd), size, other).replace(at(kOther), size, odd);
  }
  return bytes;
}

void write_text(const fs::path& folder, Change change) {
  write_file(folder / "book.txt", changed(learnable_text().substr(0, kRecords * 16 + 1), 0, 16, change));
}

/// Numbers of 16 bits, as nanoGPT has them, in two files, of which the second changes.
void write_tokens(const fs::path& folder, Change change) {
  std::string numbers;
  for (const char letter : learnable_text().substr(0, kRecords * 16 + 1)) numbers += {letter, '\0'};
  write_file(folder / "0.bin", numbers);
  write_file(folder / "1.bin", changed(numbers, 0, 32, change));
}

/// The pixels change, and how many labels there are.
void write_idx(const fs::path& folder, Change change) {
  write_small_dataset(folder, kRecords, 20);
  const auto rewrite = [&](const char* name, std::size_t head, std::size_t size, Change what) {
    std::string bytes = changed(read_file(folder / name), head, size, what);
    bytes[7] = static_cast<char>((bytes.size() - head) / size);
    write_file(folder / name, bytes);
  };
  rewrite("train-images-idx3-ubyte", 16, 28 * 28, change);
  const bool resized = change == Change::grown || change == Change::shrunk;
  rewrite("train-labels-idx1-ubyte", 8, 1, resized ? change : Change::none);
}

void write_cifar10(const fs::path& folder, Change change) {
  constexpr std::size_t kRecord = 1 + 3 * 32 * 32;
  std::string bytes;
  for (std::size_t i = 0; i < kRecords; ++i) {
    bytes += static_cast<char>(i % 10);
    for (std::size_t pixel = 1; pixel < kRecord; ++pixel) bytes += static_cast<char>(i * pixel % 251);
  }
  for (int i = 1; i <= 4; ++i)
    write_file(folder / ("data_batch_" + std::to_string(i) + ".bin"), bytes.substr(0, 2 * kRecord));
  write_file(folder / "data_batch_5.bin", changed(bytes, 0, kRecord, change));
  write_file(folder / "test_batch.bin", bytes.substr(0, 9 * kRecord));
}

/// Two classes, whose pictures are of three kinds; every build with a decoder can read them.
void write_pictures(const fs::path& folder, Change change) {
#ifdef DTRAIN_TEST_WITHOUT_PNG
  constexpr const char* kNames[] = {"0-420-False.jpg", "0-gray.jpg", "exif.jpg"};
#else
  constexpr const char* kNames[] = {"0-RGB.png", "0-L.png", "0-P.png"};
#endif
  std::vector<std::string> pictures;
  for (std::size_t i = 0; i < kRecords; ++i)
    pictures.push_back(read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / kNames[i % 5 % 3]));
  if (change == Change::grown) pictures.push_back(pictures[kOdd]);
  if (change == Change::shrunk) pictures.pop_back();
  if (change == Change::value) pictures[kOdd] = pictures[0];
  if (change == Change::rows) std::swap(pictures[kOdd], pictures[kOther]);
  fs::remove_all(folder / "pictures");
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const fs::path own = folder / "pictures" / (i < kRecords / 2 ? "cat" : "dog");
    fs::create_directories(own);
    write_file(own / (std::to_string(1000 + i) + ".png"), pictures[i]);
  }
}

struct Kind {
  std::string name;
  std::vector<std::string> arguments;
  std::function<void(const fs::path& folder, Change change)> write;
  bool columns = false;  ///< has names for them
  bool by_name = false;  ///< and finds them by those
};

const Kind kKinds[] = {
    {"csv",
     {"--dataset=csv:table.csv,target=sum,split=0.8", "--task=regression", "--model=linear"},
     write_csv,
     true},
    {"csv_features",
     {"--dataset=csv:table.csv,target=sum,features=b+a,split=0.8", "--task=regression", "--model=linear"},
     write_csv,
     true,
     true},
    {"csv_test",
     {"--dataset=csv:table.csv,target=sum,test=test.csv", "--task=regression", "--model=linear"},
     write_two_csv,
     true,
     true},
    {"npy", {"--dataset=npy:y=y.npy,x=x.npy,split=0.8", "--task=regression", "--model=linear"}, write_npy},
    {"text",
     {"--dataset=text:book.txt,context=16", "--model=transformer", "--width=8", "--heads=2", "--layers=1"},
     write_text},
    {"tokens",
     {"--dataset=tokens:*.bin,context=16,vocabulary=512", "--model=transformer", "--width=8", "--heads=2",
      "--layers=1"},
     write_tokens},
    {"idx", {"--dataset=fashion-mnist", "--model=linear"}, write_idx},
    {"cifar10", {"--dataset=cifar10", "--model=linear"}, write_cifar10},
    {"folder", {"--dataset=folder:pictures,size=8,split=0.8", "--model=linear"}, write_pictures},
};

class Data : public testing::TestWithParam<Kind> {
 protected:
  fs::path data(const std::string& name, Change change) const {
    fs::create_directories(folder_ / name);
    GetParam().write(folder_ / name, change);
    return folder_ / name;
  }
  std::vector<std::string> arguments(std::vector<std::string> more) const {
    std::vector<std::string> all = GetParam().arguments;
    all.insert(all.end(), {"--global-batch-size=8", "--lr=0.01"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  RunResult train_on(const fs::path& data, const std::string& run, int steps) const {
    return train(
        {.start = Start::alone,
         .launcher_arguments = {},
         .arguments = arguments({"--data-dir=" + data.string(), "--max-steps=" + std::to_string(steps)}),
         .run_dir = folder_ / run,
         .options = limited_to(std::chrono::seconds(60))});
  }
  /// Two workers, of which rank 1 finds `change` in its folder.
  RunResult train_together(Change change) const {
    data("together0", Change::none);
    data("together1", change);
    return train(
        {.program = {"/bin/sh", "-c",
                     R"(exec "$0" train "$@" --data-dir=")" + (folder_ / "together").string() + R"($RANK")",
                     program("dtrain")},
         .start = Start::launcher,
         .world = 2,
         .launcher_arguments = {},
         .arguments = arguments({"--max-steps=1", "--eval-every=0"}),
         .run_dir = folder_ / ("together" + std::to_string(static_cast<int>(change))),
         .options = limited_to(std::chrono::seconds(60))});
  }

  TempDir folder_;
};

/// Whether data with `change` are those that were there before, as far as `kind` is concerned.
bool same(const Kind& kind, Change change) {
  return change == Change::none || (change == Change::columns && (!kind.columns || kind.by_name));
}

TEST_P(Data, ARunGoesOnWithItsOwnDataOnly) {
  ASSERT_EQ(train_on(data("data", Change::none), "run", 1).exit_code, 0);
  for (const Change change : kAll) {
    SCOPED_TRACE(static_cast<int>(change));
    const std::string name = "changed" + std::to_string(static_cast<int>(change));
    fs::copy(folder_ / "run", folder_ / ("run" + name), fs::copy_options::recursive);
    const RunResult result = train_on(data(name, change), "run" + name, 2);
    if (same(GetParam(), change)) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, Not(HasSubstr("grown")));
    } else if (change == Change::grown) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, HasSubstr("the data have grown since"));
    } else {
      EXPECT_EQ(result.exit_code, 2) << result.err;
      EXPECT_THAT(result.err, HasSubstr("--dataset: the data are not those that"));
      EXPECT_EQ(step_lines(folder_ / ("run" + name)).size(), 1U) << "nothing was trained";
    }
    if (change == Change::columns && !same(GetParam(), change)) {
      EXPECT_THAT(result.err,
                  HasSubstr("expected x float32 [2] (a, b), y float32 [1] (sum), got x float32 [2] (b, a)"));
    }
  }
}

TEST_P(Data, WorkersThatTrainTogetherHaveTheSame) {
  for (const Change change : kAll) {
    SCOPED_TRACE(static_cast<int>(change));
    const RunResult result = train_together(change);
    EXPECT_EQ(result.exit_code, same(GetParam(), change) ? 0 : 2) << result.err;
    if (!same(GetParam(), change)) {
      EXPECT_THAT(result.err, HasSubstr("rank 1 has different data from rank 0"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Data, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return kind.param.name; });

// Probabilities in the place of classes: the same weights in any world, mixed too, and columns that are
// named.
TEST(SoftLabels, AreLearnedAlikeByAnyNumberOfWorkers) {
  const TempDir folder;
  std::string table = "a,b,cat,dog,bird\n";
  for (const Row& row : rows(Change::none)) {
    const float cat = row.a / 4, dog = (1 - cat) * row.b * 2;
    table += fmt::format("{},{},{},{},{}\n", row.a, row.b, cat, dog, 1 - cat - dog);
  }
  write_file(folder / "table.csv", table);
  for (const std::string more : {"--label-smoothing=0", "--mixup=0.4"}) {
    for (const int world : {1, 2}) {
      const RunResult result =
          train({.start = world == 1 ? Start::alone : Start::launcher,
                 .world = world,
                 .launcher_arguments = {},
                 .arguments = {"--dataset=csv:table.csv,label=cat+dog+bird,split=0.8", "--model=linear",
                               "--data-dir=" + folder.path().string(), "--virtual-workers=2",
                               "--global-batch-size=8", "--epochs=2", more},
                 .run_dir = folder / (more + std::to_string(world)),
                 .options = limited_to(std::chrono::seconds(60))});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.out, HasSubstr("test accuracy"));
    }
    EXPECT_EQ(final_weights(folder / (more + "1")), final_weights(folder / (more + "2"))) << more;
  }
  const RunResult predicted = run({program("dtrain"), "predict", (folder / "--mixup=0.41").string(),
                                   "--input", (folder / "table.csv").string()});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, testing::StartsWith("class,cat,dog,bird\n"));
}

/// The line of the run's event `event` that is the last.
Json last_line(const fs::path& run, const std::string& event) {
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  Json last;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse_or_null(line);
    if (json.is_object() && json["event"] == event) last = json;
  }
  return last;
}

// Where nothing is learned, and the same rows are evaluated, each sample counts as it does there: in every
// form.
TEST(TrainMetrics, AreThoseOfTheEpochsSamplesInEveryForm) {
  const TempDir folder;
  std::string table = "a,b,c,label\n";
  for (const Row& row : rows(Change::none))
    table += fmt::format("{},{},{},{}\n", row.a, row.b, row.a - row.b,
                         row.a > 0.7F   ? 2
                         : row.b > 0.3F ? 1
                                        : 0);
  write_file(folder / "table.csv", table);
  const struct {
    int world;
    std::vector<std::string> launcher, arguments;
  } forms[] = {
      {1, {}, {}},
      {2, {}, {}},
      {3, {}, {"--accumulate=2"}},
      {2, {}, {"--virtual-workers=4"}},
      {2, {}, {"--pipeline=2", "--micro-batches=2"}},
      {2, {}, {"--shard=parameters"}},
      {2, {}, {"--sync-every=2"}},
      {1, {}, {"--devices=cpu:0,cpu:1"}},
      {2, {"--servers=1"}, {}},
      {1, {}, {"--thread-workers=2"}},
      {2, {}, {"--check-compute=1"}},
  };
  for (const auto& [world, launcher, more] : forms) {
    std::vector<std::string> arguments = {"--dataset=csv:table.csv,label=label,test=table.csv",
                                          "--data-dir=" + folder.path().string(),
                                          "--model=mlp",
                                          "--global-batch-size=12",
                                          "--epochs=2",
                                          "--lr=0",
                                          "--train-metrics"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const fs::path run_dir = folder / fmt::format("run{}", &more - &forms[0].arguments);
    const RunResult result = train({.start = world == 1 ? Start::alone : Start::launcher,
                                    .world = world,
                                    .launcher_arguments = launcher,
                                    .arguments = arguments,
                                    .run_dir = run_dir,
                                    .options = limited_to(std::chrono::seconds(60))});
    const std::string form = fmt::format("{} workers {}", world, fmt::join(more, " "));
    ASSERT_EQ(result.exit_code, 0) << form << result.err;
    const Json epoch = last_line(run_dir, "epoch"), found = last_line(run_dir, "eval");
    EXPECT_EQ(epoch["train_samples"].integer(), 60) << form;
    EXPECT_EQ(epoch["train_accuracy"].number(), found["accuracy"].number()) << form;
    EXPECT_THAT(result.out, HasSubstr(fmt::format("train accuracy {0:.4f}, test accuracy {0:.4f}",
                                                  found["accuracy"].number())))
        << form;
  }
}

}  // namespace
}  // namespace dtrain::test
