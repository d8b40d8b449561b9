// The same images from another kind of file train to the same weights, bit for bit.
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/training.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain::test {
namespace {

constexpr int kTrain = 200, kTest = 40;

/// The elements of an IDX file as a .npy file of that shape.
void write_npy(const std::filesystem::path& to, const std::filesystem::path& idx, std::size_t header,
               const std::string& shape) {
  write_file(to, npy_header("|u1", shape, 1) + read_file(idx).substr(header));
}

RunResult train_on(const std::string& dataset, const std::filesystem::path& folder,
                   const std::filesystem::path& run, int world) {
  return train({.start = world == 1 ? Start::alone : Start::launcher,
                .world = world,
                .launcher_arguments = {},
                .arguments = {"--model", "lenet", "--dataset", dataset, "--data-dir", folder.string(),
                              "--epochs", "1", "--global-batch-size", "48", "--loader-threads", "2"},
                .run_dir = run,
                .options = {}});
}

TEST(OwnFiles, ImagesFromNpyTrainAsTheyDoFromIdx) {
  const TempDir folder;
  const auto data = folder / "data";
  write_small_dataset(data, kTrain, kTest);
  write_npy(data / "image.npy", data / "train-images-idx3-ubyte", 16, "(200, 1, 28, 28)");
  write_npy(data / "label.npy", data / "train-labels-idx1-ubyte", 8, "(200,)");
  write_npy(data / "test_image.npy", data / "t10k-images-idx3-ubyte", 16, "(40, 1, 28, 28)");
  write_npy(data / "test_label.npy", data / "t10k-labels-idx1-ubyte", 8, "(40,)");
  const std::string npy =
      "npy:image=image.npy,label=label.npy,test.image=test_image.npy,test.label=test_label.npy,classes=10";
  for (const int world : {1, 2}) {
    const auto idx_run = folder / ("idx" + std::to_string(world)),
               npy_run = folder / ("npy" + std::to_string(world));
    const RunResult from_idx = train_on("fashion-mnist", data, idx_run, world);
    ASSERT_EQ(from_idx.exit_code, 0) << from_idx.err;
    const RunResult from_npy = train_on(npy, data, npy_run, world);
    ASSERT_EQ(from_npy.exit_code, 0) << from_npy.err;
    EXPECT_EQ(final_weights(npy_run), final_weights(idx_run));
    EXPECT_EQ(last_accuracy(npy_run), last_accuracy(idx_run));
  }
}

// y = 2a - b + 1 in quarters, which text and float32 both hold exactly; the same rows are held out of both
// files.
TEST(OwnFiles, TablesTrainAsTheSameNumbersFromNpyDo) {
  constexpr int kRows = 120;
  const TempDir folder;
  std::string table = "a,price,b\n";
  std::vector<float> x, y;
  for (int i = 0; i < kRows; ++i) {
    const float a = static_cast<float>(i % 11) / 4 - 1, b = static_cast<float>(i % 7) / 4 - 1;
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - b + 1);
    table += std::to_string(a) + "," + std::to_string(y.back()) + "," + std::to_string(b) + "\n";
  }
  write_file(folder / "table.csv", table);
  write_file(folder / "x.npy", npy_bytes<float>("<f4", "(120, 2)", x));
  write_file(folder / "y.npy", npy_bytes<float>("<f4", "(120, 1)", y));
  const auto run_on = [&](const std::string& dataset, const std::string& name) {
    const RunResult result = train(
        {.start = Start::alone,
         .world = 1,
         .launcher_arguments = {},
         .arguments = {"--task", "regression", "--model", "linear", "--dataset", dataset, "--data-dir",
                       folder.path().string(), "--epochs", "30", "--global-batch-size", "16", "--lr", "0.2"},
         .run_dir = folder / name,
         .options = {}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return folder / name;
  };
  const auto csv = run_on("csv:table.csv,target=price,split=0.8,split-seed=4", "csv");
  const auto npy = run_on("npy:x=x.npy,y=y.npy,split=0.8,split-seed=4", "npy");
  EXPECT_EQ(final_weights(csv), final_weights(npy));
  EXPECT_LT(losses(csv).back(), 1e-4) << "a line that has no noise is found";
}

}  // namespace
}  // namespace dtrain::test
