// Orders and pixels must be PyTorch's, bit for bit (golden.json, written by make_golden.py).
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/random.h"
#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/json.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/fake_device.h"

namespace dtrain {
namespace {

using test::Json;

const Json& golden() {
  static const Json json = [] {
    const char* const path = std::getenv("DTRAIN_GOLDEN");
    return Json::read(path != nullptr ? path : "golden.json");
  }();
  return json;
}

template <class T>
std::uint32_t crc_of(const std::vector<T>& values) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(values.data()), values.size() * sizeof(T)));
}

void expect_same(const std::vector<std::int64_t>& got, const Json& expected, const std::string& where) {
  ASSERT_EQ(got.size(), expected["count"].get<std::size_t>()) << where;
  if (expected.contains("values")) {
    EXPECT_EQ(got, expected["values"].get<std::vector<std::int64_t>>()) << where;
  }
  EXPECT_EQ(crc_of(got), expected["crc32"].get<std::uint32_t>()) << where;
}

TEST(DataParity, Randperm) {
  ASSERT_GE(golden()["randperm"].size(), 10U);
  for (const Json c : golden()["randperm"]) {
    Generator generator(c["seed"].get<std::uint64_t>());
    expect_same(generator.permutation(c["n"]), c, "randperm " + c["n"].dump() + " seed " + c["seed"].dump());
  }
}

TEST(DataParity, DistributedSampler) {
  ASSERT_GE(golden()["sampler"].size(), 25U);
  for (const Json c : golden()["sampler"]) {
    for (int rank = 0; rank < c["world"]; ++rank) {
      const DistributedSampler sampler({c["n"], c["world"], rank, c["seed"], c["shuffle"], c["drop_last"]});
      expect_same(sampler.order(c["epoch"]), c["ranks"][static_cast<std::size_t>(rank)],
                  "n " + c["n"].dump() + " world " + c["world"].dump() + " rank " + std::to_string(rank));
    }
  }
}

// One image a pixel value, so that all 256 are decoded.
TEST(DataParity, EveryPixelValue) {
  const test::TempDir folder;
  std::string images{'\0', '\0', 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28},
      labels{'\0', '\0', 8, 1, 0, 0, 0, 1, 0};
  for (int i = 0; i < 784; ++i) images += static_cast<char>(i % 256);
  test::write_file(folder / "train-images-idx3-ubyte", images);
  test::write_file(folder / "train-labels-idx1-ubyte", labels);
  const auto source = open_source("fashion-mnist", Split::train, {folder.path().string(), "off", nullptr});
  std::vector<float> pixels = test::image(*source, 0);
  pixels.resize(256);
  EXPECT_EQ(crc_of(pixels), golden()["pixels_crc32"].get<std::uint32_t>());
}

// The real set through cache and loader, in PyTorch's shuffled order.
TEST(DataParity, BatchesOfTheRealSet) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the real set is not installed: apt install dataset-fashion-mnist";
  }
  const test::TempDir folder;
  for (const Json c : golden()["batches"]) {
    const Split split = c["split"] == "train" ? Split::train : Split::test;
    const auto source = open_source("fashion-mnist", split, {"", (folder / "cache").string(), nullptr});
    ASSERT_EQ(source->size(), c["size"].get<std::int64_t>());
    Loader loader(source, std::make_shared<test::PinnedOnlyDevice>(), {.batch_size = 100, .threads = 2});
    auto order = Generator(3).permutation(source->size());
    order.resize(c["count"]);
    loader.start(order, 0);
    std::vector<float> images;
    std::vector<std::int64_t> labels;
    while (const auto batch = loader.next(Deadline::after(std::chrono::seconds(20)))) {
      const View &pixels = (*batch)["image"], &classes = (*batch)["label"];
      images.insert(images.end(), pixels.as<float>(), pixels.as<float>() + pixels.numel());
      labels.insert(labels.end(), classes.as<std::int64_t>(), classes.as<std::int64_t>() + batch->size());
    }
    EXPECT_EQ(crc_of(images), c["images_crc32"].get<std::uint32_t>()) << c["split"];
    EXPECT_EQ(crc_of(labels), c["labels_crc32"].get<std::uint32_t>()) << c["split"];
  }
}

}  // namespace
}  // namespace dtrain
