// Pictures as training reads them, epoch by epoch: of a size that grows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/loader.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/fake_device.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class PictureTraining : public ::testing::Test {
 protected:
  /// Two classes of five.
  PictureTraining() {
#ifdef DTRAIN_TEST_WITHOUT_PNG
    constexpr const char* kNames[] = {"0-420-False.jpg", "0-gray.jpg", "exif.jpg"};
#else
    constexpr const char* kNames[] = {"0-RGB.png", "0-L.png", "mistyped.jpg"};
#endif
    for (int i = 0; i < 10; ++i) {
      const fs::path name = folder_ / (i % 2 == 0 ? "cat/" : "dog/") / (std::to_string(i) + ".png");
      fs::create_directories(name.parent_path());
      fs::copy_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / kNames[i % 3], name);
    }
  }
  Splits open(const std::string& settings, const std::string& augment, OpenSourceOptions options = {}) const {
    options.data_dir = folder_.path().string();
    options.augment = augmentation_named(augment);
    return open_splits("folder:" + settings, options);
  }
  test::TempDir folder_;
};

TEST_F(PictureTraining, GrowsAlongTheEpochsAndIsEvaluatedAtItsOwnSize) {
  const std::string size = "size=32/96/1/3";
  for (const std::string& augment : {size, "imagenet,erase=0.5," + size}) {
    const Splits splits = open(".,size=64,resize=72,split=0.8", augment);
    EXPECT_EQ(describe(splits.train->fields()), "image float32 [3, 64, 64], label int64 []");
    EXPECT_EQ(describe(splits.test->fields()), describe(splits.train->fields()));
    EXPECT_EQ(splits.test->at_epoch(2), nullptr);
    const auto files = open_picture_folder(folder_.path().string());
    for (const auto& [epoch, side, resize] :
         {std::tuple{0, 32, 36}, {1, 32, 36}, {2, 64, 72}, {3, 96, 108}, {9, 96, 108}}) {
      const auto seen = splits.train->at_epoch(epoch);
      ASSERT_NE(seen, nullptr);
      ASSERT_EQ(seen->size(), splits.train->size());
      EXPECT_EQ(seen->name(), splits.train->name());
      const Dims shape{3, side, side};
      EXPECT_EQ(seen->fields()[0].shape, shape) << epoch;
      const PictureTransform transform(side, resize, augmentation_named(augment));
      for (std::int64_t i = 0; i < seen->size(); ++i) {
        ASSERT_EQ(seen->place_of(i), splits.train->place_of(i));
        std::vector<std::uint8_t> memory;
        std::vector<float> expected(static_cast<std::size_t>(shape.product()));
        KeyedGenerator generator(7, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(i));
        transform(*open_picture(files->read(seen->place_of(i), memory)), generator,
                  {expected.data(), DType::f32, shape, contiguous_strides(shape)});
        const test::Sample sample(*seen, i, {}, 7, static_cast<std::uint64_t>(epoch));
        EXPECT_EQ(sample.values<float>("image"), expected) << epoch << ", " << i;
        EXPECT_EQ(sample.label(), files->label(seen->place_of(i)));
      }
    }
  }
}

TEST_F(PictureTraining, IsOfOneOtherSize) {
  const Splits splits = open(".,size=24", "imagenet,size=16");
  EXPECT_EQ(describe(in_epoch(splits.train, 5)->fields()), "image float32 [3, 16, 16], label int64 []");
  EXPECT_EQ(describe(splits.test->fields()), "image float32 [3, 24, 24], label int64 []");
  const Splits plain = open(".,size=24", "imagenet");
  EXPECT_EQ(in_epoch(plain.train, 5), plain.train);
}

#ifndef DTRAIN_TEST_WITHOUT_PNG
TEST_F(PictureTraining, ClipsAndMasksGrowToo) {
  fs::create_directories(folder_ / "clips/run/a");
  fs::create_directories(folder_ / "clips/run/b");
  fs::create_directories(folder_ / "masks");
  for (const char* const name : {"clips/run/a/1.png", "clips/run/a/2.png", "clips/run/b/1.png",
                                 "clips/run/b/2.png", "masks/a.png", "masks/b.png"})
    fs::copy_file(folder_ / "cat/0.png", folder_ / name);
  for (const char* const name : {"masks/a.seg.png", "masks/b.seg.png"})
    fs::copy_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "masks/61-P.png", folder_ / name);
  const auto clips = open("clips,frames=2,size=16,split=0.5", "imagenet,size=8/24/0/1").train;
  EXPECT_EQ(describe(clips->fields()), "clip float32 [2, 3, 16, 16], label int64 []");
  EXPECT_EQ(describe(in_epoch(clips, 0)->fields()), "clip float32 [2, 3, 8, 8], label int64 []");
  EXPECT_EQ(test::Sample(*in_epoch(clips, 1), 0, {}, 7, 1).values<float>("clip").size(), 2U * 3 * 24 * 24);
  const auto masked = open("masks,mask=seg.png,classes=21,size=16,split=0.5", "flip,size=8").train;
  EXPECT_EQ(describe(in_epoch(masked, 0)->fields()), "image float32 [3, 8, 8], mask int64 [8, 8]");
  EXPECT_EQ(test::Sample(*in_epoch(masked, 0), 0, {}, 7, 1).values<std::int64_t>("mask").size(), 64U);
}
#endif

}  // namespace
}  // namespace dtrain
