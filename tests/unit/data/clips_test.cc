// Clips as samples: which files they are made of, which frames are taken, and that all of them are changed
// alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "runtime/base/error.h"
#include "runtime/data/images/clips/clip_source.h"
#include "runtime/data/loader.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/fake_device.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSize = 16;
constexpr std::int64_t kFrame = 3 * kSize * kSize;

/// Of one size, and readable by every build with a decoder.
std::string picture(int number) {
#ifdef DTRAIN_TEST_WITHOUT_PNG
  constexpr const char* kNames[] = {"0-420-False.jpg", "0-422-True.jpg", "0-gray.jpg", "0-444-True.jpg"};
#else
  constexpr const char* kNames[] = {"0-RGB.png", "0-L.png", "0-P.png", "0-RGBA.png"};
#endif
  return test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / kNames[number % 4]);
}

class Clips : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    test::write_file(folder_ / name, content);
  }
  /// Clip `name` of `count` frames, named without zeros in front.
  void add_frames(const std::string& name, int count) const {
    for (int i = 0; i < count; ++i) add(name + "/frame" + std::to_string(i + 1) + ".png", picture(i));
  }
  /// The frames of clip `index` as an array, frames in front.
  static std::string as_array(const ClipFiles& files, std::int64_t index) {
    const auto clip = files.open(index);
    std::vector<std::uint8_t> planes;
    PictureSize size;
    for (std::int64_t t = 0; t < clip->frames(); ++t) {
      const auto decoder = clip->frame(t);
      size = decoder->size();
      Picture memory;
      const PictureView view = decoder->decode({0, 0, size.width, size.height}, memory);
      for (int c = 0; c < 3; ++c) {
        for (int y = 0; y < size.height; ++y)
          for (int x = 0; x < size.width; ++x) planes.push_back(view.row(y)[3 * x + c]);
      }
    }
    return test::npy_bytes("|u1",
                           "(" + std::to_string(clip->frames()) + ", 3, " + std::to_string(size.height) +
                               ", " + std::to_string(size.width) + ")",
                           planes);
  }
  Splits open(const std::string& settings, OpenSourceOptions options = {}) const {
    options.data_dir = folder_.path().string();
    return open_splits("folder:" + settings, options);
  }
  std::shared_ptr<const ClipSource> source(const ClipOptions& options) const {
    const auto files = open_clip_folder(folder_.path().string());
    return std::make_shared<const ClipSource>(
        "clips", files, options, std::make_shared<BadSamples>(OnBadSample::stop, files->size(), nullptr));
  }
  static ClipOptions small(int frames, int stride, const std::string& augment) {
    return {frames, stride, {.size = kSize, .resize = 19, .augmentation = augmentation_named(augment)}};
  }
  std::string relative(const std::string& path) const {
    return path.substr(folder_.path().string().size() + 1);
  }
  test::TempDir folder_;
};

TEST_F(Clips, AreFoldersOfFramesAndArraysBelowTheirClass) {
  add_frames("run/b", 11);
  add_frames("run/a/deep", 2);
  add_frames("walk", 3);  // frames of the class itself are a clip
  add("walk/x.npy", "");
  add("walk/frame2b.png", picture(0));
  add("walk/frame02.png", picture(0));
  add("walk/notes.txt", "");
  const auto files = open_clip_folder(folder_.path().string());
  EXPECT_THAT(files->classes(), ElementsAre("run", "walk"));
  std::vector<std::string> places;
  for (std::int64_t i = 0; i < files->size(); ++i) places.push_back(relative(files->place(i)));
  EXPECT_THAT(places, ElementsAre("run/a/deep", "run/b", "walk", "walk/x.npy"));
  EXPECT_THAT((std::vector{files->label(0), files->label(1), files->label(2), files->label(3)}),
              ElementsAre(0, 0, 1, 1));
  const auto names = [&](std::int64_t clip) {
    std::vector<std::string> frames;
    const auto opened = files->open(clip);
    for (std::int64_t t = 0; t < opened->frames(); ++t)
      frames.push_back(fs::path(opened->place(t)).stem().string());
    return frames;
  };
  EXPECT_THAT(names(1), ElementsAre("frame1", "frame2", "frame3", "frame4", "frame5", "frame6", "frame7",
                                    "frame8", "frame9", "frame10", "frame11"));
  EXPECT_THAT(names(2), ElementsAre("frame1", "frame02", "frame2", "frame2b", "frame3"));
}

TEST_F(Clips, EachFrameIsChangedAlike) {
  add_frames("run/a", 4);
  const std::string recipe = "imagenet,jitter=0.4/0.4/0.4/0.1,randaugment=2/9,trivialaugment,erase=1";
  const auto clips = source(small(4, 1, recipe));
  EXPECT_EQ(describe(clips->fields()), "clip float32 [4, 3, 16, 16], label int64 []");
  const PictureTransform transform(kSize, 19, augmentation_named(recipe), kImageNetNumbers);
  const auto files = open_clip_folder(folder_.path().string());
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    const auto clip = test::Sample(*clips, 0, {}, 7, epoch).values<float>("clip");
    for (std::int64_t t = 0; t < 4; ++t) {
      std::vector<float> expected(kFrame);
      const Dims shape{3, kSize, kSize};
      KeyedGenerator generator(7, epoch, 0);  // the same draws for each
      transform(*files->open(0)->frame(t), generator,
                {expected.data(), DType::f32, shape, contiguous_strides(shape)});
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), clip.begin() + t * kFrame))
          << "epoch " << epoch << ", frame " << t;
    }
  }
}

TEST_F(Clips, ArraysAreTheFramesTheyWereMadeOf) {
  add_frames("run/a", 5);
  add("run/b.npy", as_array(*open_clip_folder(folder_.path().string()), 0));
  for (const char* const augment : {"none", "imagenet,randaugment"}) {
    const auto clips = source(small(3, 2, augment));
    ASSERT_EQ(clips->size(), 2);
    std::vector<std::vector<float>> values;
    for (std::int64_t i = 0; i < 2; ++i) {
      KeyedGenerator generator(1, 2, 3);
      std::vector<float> clip(3 * kFrame);
      std::int64_t label = -1;
      const Dims shape{3, 3, kSize, kSize};
      const View outputs[] = {{clip.data(), DType::f32, shape, contiguous_strides(shape)},
                              {&label, DType::i64, {}, {}}};
      clips->read(i, outputs, generator);
      EXPECT_EQ(label, 0);
      values.push_back(std::move(clip));
    }
    EXPECT_EQ(values[0], values[1]) << augment;
  }
}

TEST_F(Clips, TheMiddleIsEvaluatedAndAnyStretchIsTrainedOn) {
  add_frames("run/a", 11);
  const auto files = open_clip_folder(folder_.path().string());
  const auto frame_values = [&](std::int64_t frame) {
    std::vector<float> values(kFrame);
    const Dims shape{3, kSize, kSize};
    KeyedGenerator unused(0, 0, 0);
    PictureTransform(kSize, 19, {}, kImageNetNumbers)(
        *files->open(0)->frame(frame), unused, {values.data(), DType::f32, shape, contiguous_strides(shape)});
    return values;
  };
  const auto middle = test::Sample(*source(small(3, 3, "none")), 0).values<float>("clip");
  for (std::int64_t t = 0; t < 3; ++t) {  // 7 of 11 frames: 2, 5, 8
    EXPECT_TRUE(std::equal(middle.begin() + t * kFrame, middle.begin() + (t + 1) * kFrame,
                           frame_values(2 + 3 * t).begin()))
        << t;
  }
  // Frames repeat after four, so that each of the four beginnings shows; then there is the mirror.
  const auto trained = source(small(8, 1, "flip"));
  std::set<std::vector<float>> seen;
  for (std::uint64_t epoch = 0; epoch < 60; ++epoch)
    seen.insert(test::Sample(*trained, 0, {}, 1, epoch).values<float>("clip"));
  EXPECT_EQ(seen.size(), 8U) << "four beginnings, mirrored or not";
  EXPECT_EQ(test::Sample(*trained, 0, {}, 1, 5).values<float>("clip"),
            test::Sample(*trained, 0, {}, 1, 5).values<float>("clip"));
}

TEST_F(Clips, AreTheSameForAnyNumberOfThreads) {
  for (int i = 0; i < 6; ++i) add_frames((i % 2 == 0 ? "run/" : "walk/") + std::to_string(i), 5 + i);
  const auto source =
      open(".,frames=4,size=16,split=0.8", {.data_dir = "", .augment = augmentation_named("imagenet")}).train;
  ASSERT_EQ(source->size(), 5);
  std::vector<std::vector<float>> batches;
  for (const int threads : {0, 3}) {
    Loader loader(source, std::make_shared<test::PinnedOnlyDevice>(),
                  {.batch_size = 2, .threads = threads, .seed = 5});
    loader.start({4, 2, 0, 1, 3}, 1);
    std::vector<float> all;
    while (const auto batch = loader.next(Deadline::never())) {
      const View& clip = (*batch)["clip"];
      all.insert(all.end(), clip.as<float>(), clip.as<float>() + clip.numel());
    }
    batches.push_back(std::move(all));
  }
  EXPECT_EQ(batches[0].size(), static_cast<std::size_t>(5 * 4 * kFrame));
  EXPECT_EQ(batches[0], batches[1]);
}

TEST_F(Clips, KineticsNumbersAndSizesAreTheDefault) {
  for (const char* const name : {"run/a", "run/b", "walk/a", "walk/b"}) add_frames(name, 16);
  const Splits splits = open(".,frames=16,split=0.5");
  EXPECT_EQ(describe(splits.train->fields()), "clip float32 [16, 3, 112, 112], label int64 []");
  EXPECT_EQ(splits.train->pixel_numbers(0)->mean, kKineticsNumbers.mean);
  EXPECT_THAT(message_of([&] { open(".,frames=0"); }), HasSubstr("frames to be an integer from 1"));
  EXPECT_THAT(message_of([&] { open(".,stride=2"); }), AllOf(HasSubstr("stride=2"), HasSubstr("frames=N")));
  EXPECT_THAT(message_of([&] { open(".,frames=2,classes=3"); }), HasSubstr("classes=3"));
}

TEST_F(Clips, WhatCannotBeReadIsNamed) {
  add_frames("run/a", 7);
  EXPECT_THAT(message_of([&] { open(".,frames=4,stride=3"); }),
              AllOf(HasSubstr("run/a"), HasSubstr("at least 10 frames"), HasSubstr("7")))
      << "before a step";
  const auto refused = [&](const std::string& content) {
    add("walk/b.npy", content);
    const auto clips = source(small(2, 1, "none"));
    return message_of([&] { test::Sample(*clips, 1); });
  };
  EXPECT_THAT(refused(test::npy_bytes("|u1", "(2, 4, 4, 3)", std::vector<std::uint8_t>(96))),
              AllOf(HasSubstr("walk/b.npy"), HasSubstr("uint8 [T, 3, H, W]"), HasSubstr("[2, 4, 4, 3]")));
  EXPECT_THAT(refused(test::npy_bytes("<f4", "(2, 3, 4, 4)", std::vector<float>(96))),
              AllOf(HasSubstr("walk/b.npy"), HasSubstr("uint8")));
  EXPECT_THAT(refused(test::npy_bytes("|u1", "(1, 3, 4, 4)", std::vector<std::uint8_t>(48))),
              AllOf(HasSubstr("walk/b.npy"), HasSubstr("at least 2 frames")));
  fs::remove(folder_ / "walk/b.npy");
  add("walk/c/1.png", picture(0));
  add("walk/c/2.png", test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made/wide.jpg"));
  const auto clips = source(small(2, 1, "none"));
  EXPECT_THAT(message_of([&] { test::Sample(*clips, 1); }),
              AllOf(HasSubstr("walk/c/2.png"), HasSubstr("a frame of"), HasSubstr("150 x 8")));
}

TEST_F(Clips, ClipsToPredictNeedNoClass) {
  add_frames("new/a", 4);
  add_frames("new/b", 4);
  const std::string dataset = "folder:elsewhere,frames=4,size=16";
  const auto all = open_pictures_to_predict((folder_ / "new").string(), dataset);
  ASSERT_EQ(all.places.size(), 2U);
  EXPECT_EQ(relative(all.places[1]), "new/b");
  const auto one = open_pictures_to_predict((folder_ / "new/b").string(), dataset);
  ASSERT_EQ(one.places.size(), 1U);
  EXPECT_EQ(test::Sample(*one.source, 0).values<float>("clip"),
            test::Sample(*all.source, 1).values<float>("clip"));
}

TEST_F(Clips, ArraysOfClipsAreReadAsPixels) {
  std::vector<std::uint8_t> bytes(3 * 2 * 3 * 4 * 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
  add("clip.npy", test::npy_bytes("|u1", "(3, 2, 3, 4, 5)", bytes));
  add("label.npy", test::npy_bytes("<i8", "(3,)", std::vector<std::int64_t>{0, 1, 1}));
  const auto source = open_npy("clip=clip.npy,label=label.npy,split=0.7", folder_.path()).train;
  EXPECT_EQ(describe(source->fields()), "clip float32 [2, 3, 4, 5], label int64 []");
  ASSERT_TRUE(source->has_bytes(0));
  for (std::int64_t i = 0; i < source->size(); ++i) {
    const auto values = test::Sample(*source, i).values<float>("clip");
    const auto as_bytes = test::Sample(*source, i, {}, 0, 0, true).values<std::uint8_t>("clip");
    const auto* const expected = bytes.data() + source->place_of(i) * 120;
    for (std::size_t k = 0; k < values.size(); ++k) {
      EXPECT_EQ(values[k], static_cast<float>(expected[k]) / 255.0F);
      EXPECT_EQ(as_bytes[k], expected[k]);
    }
  }
}

}  // namespace
}  // namespace dtrain
