// CIFAR-10's binary files and synthetic sets: order of pixels, labels, and refusals that name file and place.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

constexpr std::int64_t kPixels = 3 * 32 * 32;

std::string record(int label, int first_pixel) {
  std::string bytes(1, static_cast<char>(label));
  for (std::int64_t i = 0; i < kPixels; ++i) bytes += static_cast<char>((first_pixel + i) % 256);
  return bytes;
}

class Cifar10 : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 5; ++i) {
      test::write_file(folder_ / ("data_batch_" + std::to_string(i) + ".bin"), record(i, 0) + record(9, i));
    }
    test::write_file(folder_ / "test_batch.bin", record(3, 7));
  }
  std::shared_ptr<const Source> open(Split split) {
    return open_source("cifar10", split, {.data_dir = folder_.path().string(), .cache_dir = "off"});
  }
  std::string failure() {
    try {
      open(Split::train);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  test::TempDir folder_;
};

TEST_F(Cifar10, ReadsAllFilesInOrder) {
  const auto train = open(Split::train), held_out = open(Split::test);
  EXPECT_EQ(train->size(), 10);
  EXPECT_EQ(held_out->size(), 1);
  EXPECT_EQ(describe(train->fields()), "image float32 [3, 32, 32], label int64 []");
  EXPECT_EQ(train->fields()[1].values, 10);
  EXPECT_EQ(test::label(*train, 0), 1);
  EXPECT_EQ(test::label(*train, 3), 9);
  EXPECT_EQ(test::label(*held_out, 0), 3);
  const auto chw = test::image(*train, 3);
  const auto hwc = test::Sample(*train, 3, {"image"}).values<float>("image");
  ASSERT_EQ(chw.size(), static_cast<std::size_t>(kPixels));
  for (std::size_t i = 0; i < chw.size(); ++i) {
    EXPECT_EQ(chw[i], static_cast<float>((2 + i) % 256) / 255.0F);
    EXPECT_EQ(hwc[i % 1024 * 3 + i / 1024], chw[i]);
  }
  EXPECT_EQ(test::difference_of_bytes(*train, 3), "");
}

TEST_F(Cifar10, FindsTheFolderOfTheArchive) {
  test::TempDir outer;
  std::filesystem::copy(folder_.path(), outer / "cifar-10-batches-bin");
  EXPECT_EQ(open_source("cifar10", Split::train, {.data_dir = outer.path().string()})->size(), 10);
}

TEST_F(Cifar10, RefusesWrongFilesByName) {
  test::write_file(folder_ / "data_batch_2.bin", record(1, 0).substr(1));
  EXPECT_NE(failure().find("data_batch_2.bin"), std::string::npos) << failure();
  test::write_file(folder_ / "data_batch_2.bin", record(1, 0) + record(10, 0));
  EXPECT_NE(failure().find("3073"), std::string::npos) << failure();
  test::write_file(folder_ / "data_batch_2.bin", "");
  EXPECT_NE(failure().find("0 bytes"), std::string::npos) << failure();
  std::filesystem::remove(folder_ / "data_batch_2.bin");
  EXPECT_NE(failure().find("data_dir"), std::string::npos) << failure();
  EXPECT_THROW(open_source("cifar10", Split::train), UsageError);
}

TEST(Synthetic, IsAFunctionOfIndexAndSplit) {
  const auto a = open_source("synthetic:2x3x5,7,100", Split::train);
  const auto b = open_source("synthetic:2x3x5,7,100", Split::train);
  const auto other = open_source("synthetic:2x3x5,7,100", Split::test);
  EXPECT_EQ(a->size(), 100);
  EXPECT_EQ(a->fields()[1].values, 7);
  EXPECT_EQ(describe(a->fields()), "image float32 [2, 3, 5], label int64 []");
  std::vector<int> seen(7, 0);
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::int64_t label = test::label(*a, i);
    ASSERT_EQ(label, test::label(*b, i));
    ASSERT_TRUE(label >= 0 && label < 7);
    ++seen[static_cast<std::size_t>(label)];
  }
  for (const int count : seen) EXPECT_GT(count, 0);
  const auto x = test::image(*a, 42), y = test::image(*b, 42), z = test::image(*other, 42);
  const auto hwc = test::Sample(*a, 42, {"image"}).values<float>("image");
  EXPECT_EQ(x, y);
  EXPECT_NE(x, z);
  EXPECT_EQ(hwc[1], x[15]);
  for (const float value : x) EXPECT_TRUE(value >= 0 && value <= 1);
  EXPECT_EQ(test::difference_of_bytes(*a, 42), "");
  const SubsetSource some("some", a, {7, 42});
  EXPECT_EQ(test::difference_of_bytes(some, 1), "");
}

TEST(Synthetic, RefusesOtherSpellings) {
  for (const char* name : {"synthetic:", "synthetic:3x4,5,6", "synthetic:3x4x5", "synthetic:3x4x5,6",
                           "synthetic:3x4x5,6,7,8", "synthetic:0x4x5,6,7", "synthetic:3x4x5,6,-7"}) {
    EXPECT_THROW(open_source(name, Split::train), UsageError) << name;
  }
}

}  // namespace
}  // namespace dtrain
