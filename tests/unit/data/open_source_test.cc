// Sources by name, from crafted files: images and labels must fit each other, and pixels must be PyTorch's.
#include "runtime/data/sources/open_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"

namespace dtrain {
namespace {

using test::data_error_of;
using test::gzip;
using test::idx_bytes;
using ::testing::HasSubstr;

class OpenSourceTest : public ::testing::Test {
 protected:
  void SetUp() override { write_split("train", idx_bytes({30, 28, 28}), idx_bytes({30}, 10)); }

  void write_split(const std::string& prefix, const std::string& images, const std::string& labels) {
    test::write_file(folder_ / (prefix + "-images-idx3-ubyte.gz"), gzip(images));
    test::write_file(folder_ / (prefix + "-labels-idx1-ubyte.gz"), gzip(labels));
  }
  std::shared_ptr<const Source> open(Split split = Split::train) {
    return open_source("fashion-mnist", split, {folder_.path().string(), "off", nullptr});
  }

  test::TempDir folder_;
};

TEST_F(OpenSourceTest, MnistHasTheSameFilesAndNoFolderOfItsOwn) {
  const OpenSourceOptions options{folder_.path().string(), "off", nullptr};
  const auto source = open_source("mnist", Split::train, options);
  EXPECT_EQ(source->size(), 30);
  EXPECT_THAT(source->name(), HasSubstr("mnist train"));
  EXPECT_EQ(describe(source->fields()), "image float32 [1, 28, 28], label int64 []");
  std::filesystem::create_directories(folder_ / "all" / "MNIST" / "raw");
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    const bool images = std::string(file).find("images") != std::string::npos;
    test::write_file(folder_ / "all" / "MNIST" / "raw" / file,
                     images ? idx_bytes({7, 28, 28}) : idx_bytes({7}, 10));
  }
  EXPECT_EQ(open_source("mnist", Split::train, {folder_ / "all", "off", nullptr})->size(), 7)
      << "where torchvision puts them";
  const DataError missing = data_error_of([&] {
    open_source("mnist", Split::test, {folder_ / "all", "off", nullptr});
  });
  EXPECT_THAT(missing.what(), HasSubstr("give their folder as data_dir"));
  EXPECT_THROW(open_source("mnist", Split::train, {"", "off", nullptr}), UsageError);
}

TEST_F(OpenSourceTest, DecodesPixelsAsQuotients) {
  const auto source = open();
  EXPECT_EQ(source->size(), 30);
  EXPECT_EQ(describe(source->fields()), "image float32 [1, 28, 28], label int64 []");
  EXPECT_EQ(source->fields()[1].values, 10);
  EXPECT_THAT(source->name(), HasSubstr("fashion-mnist train"));
  for (const std::int64_t index : {0, 7, 29}) {
    const auto pixels = test::image(*source, index);
    ASSERT_EQ(pixels.size(), 784U);
    for (std::int64_t i = 0; i < 784; ++i) {
      const auto value = static_cast<float>((index * 784 + i) % 251);
      ASSERT_EQ(pixels[static_cast<std::size_t>(i)], value / 255.0F) << index << " " << i;
    }
    EXPECT_EQ(test::label(*source, index), index % 10);
  }
}

TEST_F(OpenSourceTest, FindsPlainAndTorchvisionFiles) {
  const auto raw = folder_ / "FashionMNIST" / "raw";
  std::filesystem::create_directories(raw);
  test::write_file(raw / "t10k-images-idx3-ubyte", idx_bytes({3, 28, 28}));
  test::write_file(folder_ / "t10k-labels-idx1-ubyte", idx_bytes({3}, 10));
  EXPECT_EQ(open(Split::test)->size(), 3);
}

TEST_F(OpenSourceTest, RefusesDifferentCounts) {
  write_split("train", idx_bytes({30, 28, 28}), idx_bytes({29}, 10));
  const DataError error = data_error_of([&] { open(); });
  EXPECT_THAT(error.path(), HasSubstr("labels"));
  EXPECT_EQ(error.offset_bytes(), 4);
  EXPECT_THAT(error.what(), HasSubstr("expected 30 labels"));
  EXPECT_THAT(error.what(), HasSubstr("found 29"));
}

TEST_F(OpenSourceTest, RefusesLabelOutOfRange) {
  for (const int bad : {10, 255}) {
    std::string labels = idx_bytes({30}, 10);
    labels[8 + 17] = static_cast<char>(bad);
    write_split("train", idx_bytes({30, 28, 28}), labels);
    const DataError error = data_error_of([&] { open(); });
    EXPECT_EQ(error.offset_bytes(), 8 + 17);
    EXPECT_THAT(error.what(), HasSubstr("a label from 0 to 9"));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(bad) + " (label 17)"));
  }
}

TEST_F(OpenSourceTest, RefusesImagesOfAnotherSize) {
  write_split("train", idx_bytes({30, 28, 29}), idx_bytes({30}, 10));
  EXPECT_THAT(data_error_of([&] { open(); }).what(), HasSubstr("[n, 28, 28]"));
}

TEST_F(OpenSourceTest, SwappedFilesAreRefused) {
  write_split("train", idx_bytes({30}, 10), idx_bytes({30, 28, 28}));
  EXPECT_THAT(data_error_of([&] { open(); }).what(), HasSubstr("expected 1 dimensions"));
}

TEST_F(OpenSourceTest, MissingFileSaysHowToGetIt) {
  const DataError error = data_error_of([&] { open(Split::test); });
  EXPECT_THAT(error.path(), HasSubstr((folder_ / "t10k-labels-idx1-ubyte.gz").string()));
  EXPECT_THAT(error.what(), HasSubstr("apt install dataset-fashion-mnist"));
  EXPECT_THAT(error.what(), HasSubstr("data_dir"));
}

TEST(OpenSource, UnknownNameListsTheKnownOnes) {
  try {
    open_source("imagenet", Split::train);
    FAIL() << "expected a UsageError";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("fashion-mnist"));
    EXPECT_THAT(error.what(), HasSubstr("\"imagenet\""));
  }
  EXPECT_THROW(open_source("fashion-mnist", Split::train, {"", "", nullptr}), UsageError);
}

}  // namespace
}  // namespace dtrain
