// Pictures as training reads them, epoch by epoch: of a size that grows, and from memory once they are
// decoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/data/images/files/picture_cache.h"
#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/loader.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/fake_device.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What is reported, in order; used by one thread at a time.
class Reports final : public Log {
 public:
  void write(LogLevel, std::string_view message) noexcept override { messages.emplace_back(message); }
  std::vector<std::string> messages;
};

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

/// A picture of `size` that costs nothing, each byte of it `value`; counts how often it is decoded.
class PlainPicture final : public PictureDecoder {
 public:
  PlainPicture(PictureSize size, std::uint8_t value, std::atomic<int>& decoded)
      : PictureDecoder(size), value_(value), decoded_(decoded) {}

 private:
  PictureView decode_region(const Region& region, Picture& memory) override {
    ++decoded_;
    memory.resize({region.width, region.height});
    for (int y = 0; y < region.height; ++y) std::fill_n(memory.row(y), memory.row_bytes(), value_);
    return memory.view();
  }

  std::uint8_t value_;
  std::atomic<int>& decoded_;
};

std::uint8_t first_byte(PictureDecoder& picture) {
  Picture memory;
  return *picture.decode({1, 2, 3, 4}, memory).row(0);
}

constexpr std::size_t bytes_of(int width, int height) {
  return static_cast<std::size_t>(3 * width * height) + PictureCache::kEntryBytes;
}

TEST(PictureCache, KeepsWhatFitsToTheByte) {
  std::atomic<int> decoded = 0;
  Reports reports;
  PictureCache cache(bytes_of(10, 10) + bytes_of(20, 10), &reports);
  const int files = 0, others = 0;
  const auto open = [&](const int& whose, int index, PictureSize size) {
    const auto make = [&] {
      return std::make_unique<PlainPicture>(size, static_cast<std::uint8_t>(7 + index), decoded);
    };
    const auto picture = cache.open(&whose, index, make);
    EXPECT_EQ(picture->size(), size);
    EXPECT_EQ(first_byte(*picture), 7 + index);
  };
  open(files, 0, {10, 10});
  EXPECT_EQ(cache.bytes(), bytes_of(10, 10));
  open(files, 1, {20, 11});  // ten pixels too many
  EXPECT_EQ(cache.bytes(), bytes_of(10, 10));
  EXPECT_THAT(reports.messages,
              ElementsAre(AllOf(HasSubstr("full, with 1 images"), HasSubstr("each epoch"))));
  open(others, 0, {20, 10});
  EXPECT_EQ(cache.bytes(), cache.most_bytes());
  EXPECT_EQ(cache.hits(), 0);
  EXPECT_EQ(decoded, 3);
  open(files, 0, {10, 10});
  open(others, 0, {20, 10});
  EXPECT_EQ(cache.hits(), 2);
  EXPECT_EQ(decoded, 3);
  open(files, 2, {5, 6});
  open(files, 2, {5, 6});
  EXPECT_EQ(decoded, 5);
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(reports.messages.size(), 1U);
}

TEST(PictureCache, KeepsItsLimitWithManyThreads) {
  constexpr int kThreads = 8, kPictures = 40;
  std::atomic<int> decoded = 0, beyond = 0, wrong = 0;
  PictureCache cache(kPictures / 2 * bytes_of(9, 9) + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50 * kPictures; ++i) {
        const int index = (i * 7 + t) % kPictures;
        const auto make = [&] {
          return std::make_unique<PlainPicture>(PictureSize{9, 9}, static_cast<std::uint8_t>(index), decoded);
        };
        if (first_byte(*cache.open(&cache, index, make)) != index) ++wrong;
        if (cache.bytes() > cache.most_bytes()) ++beyond;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(beyond, 0);
  EXPECT_EQ(cache.size(), std::size_t{kPictures / 2});
  EXPECT_EQ(cache.bytes(), kPictures / 2 * bytes_of(9, 9));
  EXPECT_GE(cache.hits(), kThreads * 50 * kPictures / 4);
}

TEST_F(PictureTraining, FromACacheHasTheSameBits) {
  const std::string augment = "imagenet,jitter=0.4/0.4/0.4/0.1,size=16/48/0/1";
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 8; ++i) order.push_back(7 - i);
  const auto epochs = [&](std::size_t bytes, int threads) {
    const auto train =
        open(".,size=24,split=0.8", augment, {.data_dir = "", .picture_cache_bytes = bytes}).train;
    std::vector<std::vector<float>> all;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      Loader loader(in_epoch(train, epoch), std::make_shared<test::PinnedOnlyDevice>(),
                    {.batch_size = 2, .threads = threads, .seed = 5});
      loader.start(order, epoch);
      auto& values = all.emplace_back();
      while (const auto batch = loader.next(Deadline::never())) {
        const View& image = (*batch)["image"];
        values.insert(values.end(), image.as<float>(), image.as<float>() + image.numel());
      }
    }
    return all;
  };
  const auto expected = epochs(0, 0);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{40'000}, std::size_t{1} << 30}) {
    EXPECT_EQ(epochs(bytes, 0), expected) << bytes;
    EXPECT_EQ(epochs(bytes, 4), expected) << bytes;
  }
}

// Evaluation and training read one set of files; once all are decoded, the files are not read again.
TEST_F(PictureTraining, FromACacheReadsNoFileTwice) {
  const Splits splits =
      open(".,size=24,split=0.8", "imagenet", {.data_dir = "", .picture_cache_bytes = 1 << 30});
  const auto read = [&](std::uint64_t epoch) {
    std::vector<std::vector<float>> all;
    for (const auto& source : {splits.train, splits.test}) {
      for (std::int64_t i = 0; i < source->size(); ++i)
        all.push_back(test::Sample(*source, i, {}, 5, epoch).values<float>("image"));
    }
    return all;
  };
  const auto first = read(0), second = read(1);
  fs::remove_all(folder_ / "cat");
  fs::remove_all(folder_ / "dog");
  EXPECT_EQ(read(0), first);
  EXPECT_EQ(read(1), second);
  EXPECT_NE(first, second);
}

TEST_F(PictureTraining, ADamagedPictureIsNotKept) {
  const fs::path bad = folder_ / "dog/3.png";
  fs::resize_file(bad, fs::file_size(bad) / 2);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 30}) {
    const auto test = open(".,size=24,test=.", "none", {.data_dir = "", .picture_cache_bytes = bytes}).test;
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT(test::message_of([&] { test::Sample(*test, 6); }),
                  AllOf(HasSubstr("dog/3.png"), HasSubstr("at byte")))
          << bytes;
      EXPECT_EQ(test::Sample(*test, 5).label(), 1);
    }
  }
}

TEST_F(PictureTraining, ACacheIsForPicturesWithAClass) {
  const OpenSourceOptions cached{.data_dir = "", .picture_cache_bytes = 1024};
  EXPECT_THAT(test::message_of([&] { open_splits("synthetic:1x2x2,2,10", cached); }),
              AllOf(HasSubstr("image cache"), HasSubstr("1024 bytes for synthetic")));
  EXPECT_THAT(test::message_of([&] { open(".,frames=2", "none", cached); }),
              AllOf(HasSubstr("image cache"), HasSubstr("clips")));
  EXPECT_THAT(test::message_of([&] { open(".,mask=seg.png,classes=2", "none", cached); }),
              AllOf(HasSubstr("image cache"), HasSubstr("masks")));
}

}  // namespace
}  // namespace dtrain
