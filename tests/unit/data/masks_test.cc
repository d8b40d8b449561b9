// Pictures with masks as samples: which mask belongs to which picture, that both are cropped alike, and what
// is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/data/formats/tar_writer.h"
#include "runtime/data/images/masks/masked_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Masks : public ::testing::Test {
 protected:
  static std::string recorded(const std::string& name) {
    return test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / name);
  }
  void SetUp() override {
#ifdef DTRAIN_TEST_WITHOUT_PNG
    GTEST_SKIP() << "this build has no libpng";
#endif
  }
  void add(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    test::write_file(folder_ / name, content);
  }
  /// Picture and mask, 61 x 45 each, at `stem` in `pictures` and `masks`.
  void add_pair(const std::string& pictures, const std::string& masks, const std::string& stem,
                const std::string& ending) const {
    add(pictures + "/" + stem + ".png", recorded("made/0-RGB.png"));
    add(masks + "/" + stem + "." + ending, recorded("masks/61-P.png"));
  }
  Splits open(const std::string& dataset, OpenSourceOptions options = {}) const {
    options.data_dir = folder_.path().string();
    return open_splits(dataset, options);
  }
  test::TempDir folder_;
};

TEST_F(Masks, AreCroppedAndMirroredWithTheirPicture) {
  for (const char* const stem : {"a", "deep/b", "c"}) add_pair("all", "all", stem, "seg.png");
  const auto source =
      open("folder:all,mask=seg.png,classes=21,size=24,split=0.7",
           {.data_dir = "", .augment = augmentation_named("imagenet,jitter=0.4/0.4/0.4/0.1,erase=0.5")})
          .train;
  ASSERT_EQ(source->size(), 2) << "masks are no pictures";
  EXPECT_EQ(describe(source->fields()), "image float32 [3, 24, 24], mask int64 [24, 24]");
  EXPECT_EQ(source->fields()[1].values, 21);
  const PictureTransform crop(24, 28, augmentation_named("imagenet"));
  const std::string mask = recorded("masks/61-P.png");
  const ClassMap map =
      decode_class_map({{reinterpret_cast<const std::uint8_t*>(mask.data()), mask.size()}, "m"});
  std::vector<std::vector<std::int64_t>> all;
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    KeyedGenerator generator(3, epoch, 1);
    const DrawnChanges changes = crop.draw(map.size, generator);
    std::vector<std::int64_t> expected(24 * 24);
    const Dims shape{24, 24};
    write_classes(map, {.classes = 21}, crop.seen_region(map.size, changes), changes.flip,
                  {expected.data(), DType::i64, shape, contiguous_strides(shape)});
    EXPECT_EQ(test::Sample(*source, 1, {}, 3, epoch).values<std::int64_t>("mask"), expected) << epoch;
    all.push_back(std::move(expected));
  }
  EXPECT_NE(all[0], all[1]);
}

TEST_F(Masks, ASharedPixelIsWhereItIsInThePicture) {
  // A picture that is its own mask, in the palette's gray: each pixel of the image tells its class.
  const std::string gray = recorded("masks/61-L.png");
  add("all/a.webp", gray);  // told by content
  add("all/a.png", gray);
  add("all/b.webp", gray);
  add("all/b.png", gray);
  for (const char* const augment : {"none", "flip"}) {
    // Of the same size, so that nothing is interpolated.
    const auto source =
        open("folder:all,mask=png,classes=256,ignore=256,size=45,resize=45,mean=0,deviation=1,split=0.5",
             {.data_dir = "", .augment = augmentation_named(augment)})
            .train;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      const test::Sample sample(*source, 0, {}, 1, epoch);
      const auto image = sample.values<float>("image");
      const auto mask = sample.values<std::int64_t>("mask");
      for (std::size_t i = 0; i < mask.size(); ++i)
        ASSERT_EQ(image[i], static_cast<float>(mask[i]) / 255.0F) << augment << " " << i;
    }
  }
}

TEST_F(Masks, AFolderOfTheirOwnAndShardsGiveTheSame) {
  for (const char* const stem : {"a", "deep/b"}) {
    add_pair("beside", "beside", stem, "seg.png");
    add_pair("pictures", "labels", stem, "png");
  }
  TarWriter writer((folder_ / "s.tar").string());
  for (const char* const stem : {"a", "deep/b"}) {
    writer.add(std::string(stem) + ".png", recorded("made/0-RGB.png"));
    writer.add(std::string(stem) + ".seg.png", recorded("masks/61-P.png"));
  }
  writer.finish();
  const OpenSourceOptions how{
      .data_dir = "", .cache_dir = (folder_ / "cache").string(), .augment = augmentation_named("imagenet")};
  const std::string settings = ",classes=21,size=16,split=0.5";
  const auto beside = open("folder:beside,mask=seg.png" + settings, how).train;
  const auto apart = open("folder:pictures,masks=labels" + settings, how).train;
  for (int start = 0; start < 2; ++start) {  // the second with a kept list
    const auto shards = open("shards:s.tar,mask=seg.png" + settings, how).train;
    ASSERT_EQ(shards->size(), 1);
    EXPECT_EQ(describe(shards->fields()), describe(beside->fields()));
    EXPECT_EQ(shards->fields()[1].values, 21);
    const auto mask = test::Sample(*beside, 0, {}, 2).values<std::int64_t>("mask");
    EXPECT_EQ(test::Sample(*apart, 0, {}, 2).values<std::int64_t>("mask"), mask);
    EXPECT_EQ(test::Sample(*shards, 0, {}, 2).values<std::int64_t>("mask"), mask);
    EXPECT_EQ(test::Sample(*shards, 0, {}, 2).values<float>("image"),
              test::Sample(*beside, 0, {}, 2).values<float>("image"));
  }
}

TEST_F(Masks, IgnoredPixelsHaveNoClass) {
  add_pair("all", "all", "a", "seg.png");
  add_pair("all", "all", "b", "seg.png");
  const auto source = open("folder:all,mask=seg.png,classes=20,ignore=20,size=45,resize=45,split=0.5").train;
  const auto mask = test::Sample(*source, 0).values<std::int64_t>("mask");
  EXPECT_EQ(*std::ranges::min_element(mask), -1);
  EXPECT_EQ(*std::ranges::max_element(mask), 19);
  const auto without = [&](const std::string& ignored) {
    const std::string settings = "folder:all,mask=seg.png,classes=21,size=45,resize=45,split=0.5,ignore=";
    return test::Sample(*open(settings + ignored).train, 0).values<std::int64_t>("mask");
  };
  auto expected = without("255");
  ASSERT_NE(std::ranges::count(expected, 0), 0);
  std::ranges::replace(expected, 0, -1);
  EXPECT_EQ(without("0"), expected) << "a number below classes= too";
}

TEST_F(Masks, BesidePicturesToPredictAreLeftOut) {
  add_pair("new", "new", "a", "seg.png");
  add_pair("new", "new", "deep/b", "seg.png");
  add("new/c.png", recorded("made/0-RGB.png"));
  const auto names = [&](const std::string& dataset, const std::string& input) {
    std::vector<std::string> places = open_pictures_to_predict((folder_ / input).string(), dataset).places;
    for (std::string& place : places) place.erase(0, folder_.path().string().size() + 1);
    return places;
  };
  const auto three = ::testing::ElementsAre("new/a.png", "new/c.png", "new/deep/b.png");
  EXPECT_THAT(names("folder:all,mask=seg.png,classes=21", "new"), three);
  EXPECT_THAT(names("shards:s.tar,mask=seg.png,classes=21", "new///"), three);
  EXPECT_THAT(names("folder:all,masks=labels,classes=21", "new"), ::testing::SizeIs(5));
  EXPECT_THAT(names("folder:all,mask=seg.png,classes=21", "new/a.seg.png"), ::testing::SizeIs(1));
}

TEST_F(Masks, SlashesBehindFoldersChangeNothing) {
  add_pair("pictures", "labels", "deep/b", "png");
  add_pair("pictures", "labels", "a", "png");
  const auto of = [&](const std::string& dataset) {
    const auto source = open(dataset + ",classes=21,size=16,split=0.5").train;
    return std::pair(source->file_of(0), test::Sample(*source, 0).values<std::int64_t>("mask"));
  };
  EXPECT_EQ(of("folder:pictures///,masks=labels//"), of("folder:pictures,masks=labels"));
}

TEST_F(Masks, ArraysMayHaveThem) {
  add("image.npy", test::npy_bytes("|u1", "(2, 3, 2, 2)", std::vector<std::uint8_t>(24)));
  add("u1.npy", test::npy_bytes("|u1", "(2, 2, 2)", std::vector<std::uint8_t>{0, 1, 2, 255, 3, 3, 255, 0}));
  add("i8.npy", test::npy_bytes("<i8", "(2, 2, 2)", std::vector<std::int64_t>{0, 1, 2, 255, 3, 3, 255, 0}));
  for (const std::string name : {"u1", "i8"}) {
    const auto open_it = [&](const std::string& settings) {
      return open("npy:image=image.npy,mask=" + name + ".npy,split=0.5," + settings).train;
    };
    const auto source = open_it("classes=4");
    EXPECT_EQ(describe(source->fields()), "image float32 [3, 2, 2], mask int64 [2, 2]");
    const auto mask = test::Sample(*source, 0).values<std::int64_t>("mask");
    EXPECT_EQ(mask, source->place_of(0) == 0 ? (std::vector<std::int64_t>{0, 1, 2, -1})
                                             : (std::vector<std::int64_t>{3, 3, -1, 0}));
    EXPECT_THAT(message_of([&] { test::Sample(*open_it("classes=2"), 0); }),
                AllOf(HasSubstr("mask"), HasSubstr("from -1 to 1")));
    EXPECT_THAT(message_of([&] { test::Sample(*open_it("classes=4,ignore=254"), 0); }), HasSubstr("got 255"));
  }
}

TEST_F(Masks, WhatCannotBeUsedIsNamed) {
  add_pair("all", "all", "a", "seg.png");
  add_pair("all", "all", "b", "seg.png");
  const auto refusal = [&](const std::string& dataset, const OpenSourceOptions& options = {}) {
    return message_of([&] {
      const Splits splits = open(dataset, options);
      for (std::int64_t i = 0; i < splits.train->size(); ++i) test::Sample(*splits.train, i);
      test::Sample(*splits.test, 0);
    });
  };
  const std::string good = "folder:all,mask=seg.png,classes=21,size=16,split=0.5";
  EXPECT_EQ(refusal(good), "no error");
  EXPECT_THAT(refusal("folder:all,mask=seg.png"), HasSubstr("classes=N"));
  EXPECT_THAT(refusal("folder:all,mask=.png,classes=2"), HasSubstr("without a dot"));
  EXPECT_THAT(refusal("folder:all,mask=png,classes=2"), HasSubstr("pictures in addition to masks"));
  EXPECT_THAT(refusal("folder:all,mask=seg.png,classes=20,size=16,split=0.5"),
              AllOf(HasSubstr("seg.png"), HasSubstr("a class from 0 to 19, or 255")));
  EXPECT_THAT(refusal(good, {.data_dir = "", .augment = augmentation_named("imagenet,randaugment")}),
              AllOf(HasSubstr("randaugment"), HasSubstr("masks")));
  EXPECT_THAT(refusal("shards:s.tar,mask=seg.png,masks=x,classes=2"), HasSubstr("masks=x"));
  EXPECT_THAT(refusal("folder:all,masks=all,classes=2,test=all"), HasSubstr("test-masks=DIR"));
  add("all/c.png", recorded("made/0-RGB.png"));
  EXPECT_THAT(refusal(good),
              AllOf(HasSubstr("all/c.png"), HasSubstr("all/c.seg.png"), HasSubstr("no such file")))
      << "before a step";
  add("all/c.seg.png", recorded("masks/32-P.png"));
  EXPECT_THAT(refusal("folder:all,mask=seg.png,classes=21,size=16,split=0.7"),
              AllOf(HasSubstr("c.seg.png"), HasSubstr("61 x 45"), HasSubstr("32 x 32")));
  TarWriter writer((folder_ / "s.tar").string());
  writer.add("a.png", recorded("made/0-RGB.png"));
  writer.add("a.cls", "1");
  writer.finish();
  EXPECT_THAT(refusal("shards:s.tar,mask=seg.png,classes=2"),
              AllOf(HasSubstr("s.tar"), HasSubstr("a member a.seg.png")));
}

}  // namespace
}  // namespace dtrain
