// Pictures in folders as samples: which there are, in which order, what is drawn, and what becomes of bad
// ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/data/images/contact_sheet.h"
#include "runtime/data/images/files/orientation.h"
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
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One that every build with a decoder can read.
std::string picture(int number = 0) {
#ifdef DTRAIN_TEST_WITHOUT_PNG
  constexpr const char* kNames[] = {"0-420-False.jpg", "0-gray.jpg", "exif.jpg"};
#else
  constexpr const char* kNames[] = {"0-RGB.png", "0-L.png", "mistyped.jpg"};
#endif
  return test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / kNames[number % 3]);
}

class Pictures : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    test::write_file(folder_ / name, content);
  }
  /// Two classes of five.
  void add_ten() const {
    for (int i = 0; i < 10; ++i)
      add(std::string(i % 2 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".png", picture(i));
  }
  Splits open(const std::string& settings, OpenSourceOptions options = {}) const {
    options.data_dir = folder_.path().string();
    return open_splits("folder:" + settings, options);
  }
  test::TempDir folder_;
};

/// Counts what is reported.
class Reports final : public Log {
 public:
  void write(LogLevel, std::string_view message) noexcept override { messages.emplace_back(message); }
  std::vector<std::string> messages;
};

TEST_F(Pictures, AreListedAsImageFolderListsThem) {
  const char* const names[] = {"b/2.jpg",          "b/10.jpg",   "b/x y/1.PNG", "b/x/1.png",
                               "b/x/.hidden.jpeg", "b/1.txt",    "B/z.webp",    "_/a.tiff",
                               "1/deep/er/a.jpg",  ".git/a.bmp", "\u00e9/a.png"};
  for (const char* const name : names) add(name, "");
  fs::create_directory_symlink(folder_ / "b/x", folder_ / "B/link");
  add("not a class.jpg", "");
  const auto files = open_picture_folder(folder_.path().string());
  EXPECT_THAT(files->classes(), ElementsAre(".git", "1", "B", "_", "b", "\u00e9"));
  std::vector<std::string> listed;
  std::vector<std::uint8_t> memory;
  for (std::int64_t i = 0; i < files->size(); ++i) {
    const std::string path = files->read(i, memory).path;
    listed.push_back(path.substr(folder_.path().string().size() + 1));
    EXPECT_TRUE(listed.back().starts_with(files->classes()[static_cast<std::size_t>(files->label(i))] + "/"));
  }
  EXPECT_THAT(listed, ElementsAre(".git/a.bmp", "1/deep/er/a.jpg", "B/z.webp", "B/link/.hidden.jpeg",
                                  "B/link/1.png", "_/a.tiff", "b/10.jpg", "b/2.jpg", "b/x/.hidden.jpeg",
                                  "b/x/1.png", "b/x y/1.PNG", "\u00e9/a.png"));
}

TEST_F(Pictures, ClassesHaveDistinctNamesInUtf8) {
  const char* const names[] = {"a\xe9/1.png", "a\xc3\xa9/1.png", "b\xff/1.png"};  // as ISO 8859-1 wrote them
  for (const char* const name : names) add(name, picture());
  const auto files = open_picture_folder(folder_.path().string());
  EXPECT_THAT(files->classes(), ElementsAre("a\u00e9", "a\u00e9?", "b\u00ff"));
  std::vector<std::uint8_t> memory;
  for (std::int64_t i = 0; i < files->size(); ++i)
    EXPECT_EQ(files->label(i), i) << files->read(i, memory).path;
}

TEST_F(Pictures, AreSplitTransformedAndLabelled) {
  add_ten();
  const Splits splits =
      open(".,size=16,split=0.8", {.data_dir = "", .augment = augmentation_named("imagenet")});
  EXPECT_EQ(splits.train->size(), 8);
  EXPECT_EQ(splits.test->size(), 2);
  EXPECT_EQ(describe(splits.train->fields()), "image float32 [3, 16, 16], label int64 []");
  EXPECT_EQ(splits.train->fields()[1].values, 2);
  const auto files = open_picture_folder(folder_.path().string());
  const PictureTransform train(16, 19, augmentation_named("imagenet")), test(16, 19, Augmentation{});
  for (const auto& [source, transform] : {std::pair{splits.train, train}, {splits.test, test}}) {
    for (std::int64_t i = 0; i < source->size(); ++i) {
      std::vector<std::uint8_t> memory;
      std::vector<float> expected(3 * 16 * 16);
      const Dims shape{3, 16, 16};
      KeyedGenerator generator(7, 3, static_cast<std::uint64_t>(i));
      transform(*open_picture(files->read(source->place_of(i), memory)), generator,
                {expected.data(), DType::f32, shape, contiguous_strides(shape)});
      const test::Sample sample(*source, i, {}, 7, 3);
      EXPECT_EQ(sample.values<float>("image"), expected) << i;
      EXPECT_EQ(sample.label(), files->label(source->place_of(i)));
      EXPECT_EQ(fs::path(source->file_of(i)).lexically_normal(), files->place(source->place_of(i)));
    }
  }
}

TEST_F(Pictures, AreTheSameForAnyNumberOfThreads) {
  add_ten();
  const auto source =
      open(".,size=24,split=0.9", {.data_dir = "", .augment = augmentation_named("imagenet")}).train;
  std::vector<std::int64_t> order;
  for (std::int64_t i = source->size(); i-- > 0;) order.push_back(i);
  std::vector<std::vector<float>> batches;
  for (const int threads : {0, 1, 4}) {
    Loader loader(source, std::make_shared<test::PinnedOnlyDevice>(),
                  {.batch_size = 2, .threads = threads, .seed = 5});
    loader.start(order, 1);
    std::vector<float> all;
    while (const auto batch = loader.next(Deadline::never())) {
      const View& image = (*batch)["image"];
      all.insert(all.end(), image.as<float>(), image.as<float>() + image.numel());
    }
    batches.push_back(std::move(all));
  }
  EXPECT_EQ(batches[0].size(), 9U * 3 * 24 * 24);
  EXPECT_EQ(batches[0], batches[1]);
  EXPECT_EQ(batches[0], batches[2]);
  EXPECT_NE(test::Sample(*source, 0, {}, 5, 1).values<float>("image"),
            test::Sample(*source, 0, {}, 5, 2).values<float>("image"));
}

TEST_F(Pictures, ABadOneEndsTheRunOrIsSkipped) {
  add_ten();
  add("cat/2.png", picture().substr(0, 100));
  const auto stopping = open(".,size=8,split=0.9");
  Reports reports;
  const auto skipping =
      open(".,size=8,split=0.9", {.data_dir = "", .log = &reports, .on_bad_sample = OnBadSample::skip});
  const auto third = std::make_shared<PictureSource>(
      "all", open_picture_folder(folder_.path().string()), PictureOptions{.size = 8, .resize = 10},
      std::make_shared<BadSamples>(OnBadSample::stop, 10, nullptr));
  for (const auto& [stops, skips] :
       {std::pair{stopping.train, skipping.train}, {stopping.test, skipping.test}}) {
    for (std::int64_t i = 0; i < stops->size(); ++i) {
      if (stops->place_of(i) != 1) {
        EXPECT_EQ(test::image(*stops, i), test::image(*skips, i));
        continue;
      }
      EXPECT_THAT(message_of([&] { test::image(*stops, i); }),
                  AllOf(HasSubstr("cat/2.png"), HasSubstr("whole"), HasSubstr("sample")));
      // The third of the class, in its place and labelled as itself.
      EXPECT_EQ(test::image(*skips, i), test::image(*third, 2));
      EXPECT_EQ(test::label(*skips, i), 0);
      test::image(*skips, i);
    }
  }
  EXPECT_THAT(reports.messages, ElementsAre(AllOf(HasSubstr("sample 1 is skipped"), HasSubstr("cat/2.png"))));
}

TEST_F(Pictures, ABadOneIsReplacedByOneOfItsSplit) {
  add_ten();
  const OpenSourceOptions how{.data_dir = "", .on_bad_sample = OnBadSample::skip};
  const auto places = [](const Source& source) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < source.size(); ++i) all.push_back(source.place_of(i));
    return all;
  };
  const auto held_out = places(*open(".,size=8,split=0.9", how).test);
  ASSERT_EQ(held_out.size(), 1U);
  const auto files = open_picture_folder(folder_.path().string());
  for (const std::int64_t place : held_out)
    add(fs::relative(files->place(place), folder_.path()).string(), "");
  const Splits splits = open(".,size=8,split=0.9", how);
  EXPECT_THAT(message_of([&] { test::image(*splits.test, 0); }),
              AllOf(HasSubstr("a sample that can be read"), HasSubstr("an empty file")))
      << "and not one that is trained on";

  // The training sample before a held-out one: the next one but that.
  const auto trained = places(*splits.train);
  for (const std::int64_t place : held_out)
    add(fs::relative(files->place(place), folder_.path()).string(), picture(2));
  const auto before = std::ranges::find(trained, held_out.front() - 1);
  ASSERT_NE(before, trained.end());
  const std::string bad = fs::relative(files->place(*before), folder_.path()).string();
  add(bad, "");
  const auto train = open(".,size=8,split=0.9", how).train;
  const std::int64_t at = before - trained.begin();
  EXPECT_EQ(test::image(*train, at), test::image(*train, (at + 1) % train->size()));
  EXPECT_EQ(test::label(*train, at), test::label(*train, (at + 1) % train->size()));
}

TEST_F(Pictures, MoreBadOnesThanOneInAHundredEndTheRun) {
  add_ten();
  for (const char* const name : {"cat/2.png", "cat/4.png", "cat/6.png"}) add(name, "");
  const auto source = open(".,size=8,split=0.9", {.data_dir = "", .on_bad_sample = OnBadSample::skip}).train;
  EXPECT_THAT(message_of([&] {
                for (std::int64_t i = 0; i < source->size(); ++i) test::image(*source, i);
              }),
              AllOf(HasSubstr("at most 1 samples to skip"), HasSubstr("an empty file")));
}

TEST_F(Pictures, FoldersAndSettingsThatCannotBeUsedAreNamed) {
  add_ten();
  EXPECT_THAT(message_of([&] { open("cat"); }),
              AllOf(HasSubstr("cat"), HasSubstr("a folder for each class")));
  EXPECT_THAT(message_of([&] { open("nowhere"); }), HasSubstr("nowhere"));
  EXPECT_THAT(message_of([&] { open("size=3"); }), HasSubstr("a folder first"));
  EXPECT_THAT(message_of([&] { open(".,sise=3"); }), AllOf(HasSubstr("sise=3"), HasSubstr("size=N")));
  EXPECT_THAT(message_of([&] { open(".,size=32,resize=31"); }), HasSubstr("resize to be an integer from 32"));
  add("bird/notes.txt", "");
  EXPECT_THAT(message_of([&] { open("."); }), AllOf(HasSubstr("bird"), HasSubstr("at least one picture")));
  fs::remove_all(folder_ / "bird");
  fs::create_directory_symlink(folder_.path(), folder_ / "cat/loop");
  EXPECT_THAT(message_of([&] { open("."); }), AllOf(HasSubstr("loop"), HasSubstr("link")));
}

/// Root may read everything: as nobody it may not. Until it goes out of scope.
class AsNobody {
 public:
  AsNobody() {
    if (was_ == 0) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
  }
  ~AsNobody() { EXPECT_EQ(::seteuid(was_), 0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  uid_t was_ = ::geteuid();
};

TEST_F(Pictures, FoldersAndFilesThatMayNotBeReadAreNamed) {
  add_ten();
  fs::permissions(folder_.path(), fs::perms{0755});
  fs::permissions(folder_ / "cat/2.png", fs::perms::none);
  const auto message = [&](const std::function<void()>& call) {
    const AsNobody nobody;
    return message_of(call);
  };
  const auto files = open_picture_folder(folder_.path().string());
  std::vector<std::uint8_t> memory;
  EXPECT_THAT(message([&] { files->read(1, memory); }),
              AllOf(HasSubstr("open"), HasSubstr("cat/2.png"), HasSubstr("Permission denied")));
  EXPECT_THAT(message([&] { open("."); }), HasSubstr("no error")) << "only the first of a folder is tried";
  fs::permissions(folder_ / "cat/0.png", fs::perms::none);
  EXPECT_THAT(message([&] { open("."); }),
              AllOf(HasSubstr("open"), HasSubstr("cat/0.png"), HasSubstr("Permission denied")))
      << "known before a file is read";
  fs::permissions(folder_ / "cat/0.png", fs::perms{0644});
  fs::permissions(folder_ / "dog", fs::perms{0744});
  EXPECT_THAT(message([&] { open("."); }),
              AllOf(HasSubstr("open files in the folder"), HasSubstr("dog"), HasSubstr("Permission denied")))
      << "known before a file is read";
  fs::permissions(folder_ / "dog", fs::perms{0711});
  EXPECT_THAT(message([&] { open("."); }),
              AllOf(HasSubstr("list the folder"), HasSubstr("dog"), HasSubstr("Permission denied")));
}

TEST_F(Pictures, AreTurnedAsExifSaysWhereThatIsAsked) {
#ifdef DTRAIN_TEST_WITHOUT_JPEG
  GTEST_SKIP() << "this build has no libjpeg-turbo";
#endif
  const std::string content =
      test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made/exif.jpg");  // on its side
  add("a/1.jpg", content);
  add("a/2.jpg", content);
  const EncodedPicture encoded{{reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, "1"};
  for (const bool upright : {false, true}) {
    const auto source = open(upright ? ".,size=8,split=0.5,orientation=exif" : ".,size=8,split=0.5").train;
    std::vector<float> expected(3 * 8 * 8);
    const Dims shape{3, 8, 8};
    KeyedGenerator generator(0, 0, 0);
    const auto decoder = turned_upright(open_picture(encoded), upright ? 6 : 1);
    PictureTransform(8, 10, {})(*decoder, generator,
                                {expected.data(), DType::f32, shape, contiguous_strides(shape)});
    EXPECT_EQ(test::image(*source, 0), expected) << upright;
  }
  EXPECT_THAT(message_of([&] { open(".,orientation=left"); }),
              AllOf(HasSubstr("orientation=exif"), HasSubstr("left")));
}

TEST_F(Pictures, BothFoldersHaveTheSameClasses) {
  for (const char* const name :
       {"a/x/1.png", "a/y/1.png", "b/x/1.png", "b/y/1.png", "c/x/1.png", "c/z/1.png"})
    add(name, picture());
  const Splits splits = open("a,size=8,test=b/");
  EXPECT_EQ(splits.train->size(), 2);
  EXPECT_EQ(splits.test->size(), 2);
  EXPECT_THAT(
      message_of([&] { open("a,test=c"); }),
      AllOf(HasSubstr("the same classes"), HasSubstr("2 of them in"), HasSubstr("without y and with z")));
  add("c/w/1.png", picture());
  add("c/y/1.png", picture());
  EXPECT_THAT(message_of([&] { open("a,test=c"); }), HasSubstr("/c, with w"));
  EXPECT_THAT(message_of([&] { open("c,test=a"); }), HasSubstr("/a, without w"));
}

TEST(AugmentedData, MustBePictures) {
  EXPECT_THAT(message_of([] {
                open_splits("synthetic:1x2x2,2,10",
                            {.data_dir = "", .augment = augmentation_named("imagenet")});
              }),
              AllOf(HasSubstr("augment"), HasSubstr("imagenet"), HasSubstr("synthetic")));
}

TEST_F(Pictures, AreNormalisedAsAsked) {
  add_ten();
  const auto plain = open(".,size=8").train;
  const auto other = open(".,size=8,mean=0.5,deviation=0.25+0.5+1").train;
  EXPECT_EQ(plain->pixel_numbers(0)->mean, kImageNetNumbers.mean);
  EXPECT_EQ(other->pixel_numbers(0)->deviation, (std::array<float, 3>{0.25F, 0.5F, 1}));
  const auto expected = test::image(*plain, 0), found = test::image(*other, 0);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t c = i / 64;
    const float share = expected[i] * kImageNetNumbers.deviation[c] + kImageNetNumbers.mean[c];
    EXPECT_NEAR(share, found[i] * other->pixel_numbers(0)->deviation[c] + 0.5F, 1e-6F) << i;
  }
  EXPECT_THAT(message_of([&] { open(".,mean=0.1+0.2"); }), HasSubstr("mean=X or mean=RED+GREEN+BLUE"));
  EXPECT_THAT(message_of([&] { open(".,deviation=0"); }), HasSubstr("above 0"));
}

// Pictures come back from the sheet with their colours, whatever they were normalised by.
TEST(ContactSheet, ShowsEachPictureInItsPlace) {
  constexpr int kCount = 10, kWidth = 200, kHeight = 100;
  const std::array<std::array<float, 3>, 3> colors = {{{1, 0, 0}, {0, 0.5F, 1}, {0.25F, 0.75F, 0.5F}}};
  std::vector<float> values;
  for (int i = 0; i < kCount; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      const float value = (colors[static_cast<std::size_t>(i % 3)][c] - kImageNetNumbers.mean[c]) /
                          kImageNetNumbers.deviation[c];
      values.insert(values.end(), kWidth * kHeight, value);
    }
  }
  const auto sheet = make_contact_sheet(values, {kCount, 3, kHeight, kWidth}, kImageNetNumbers, 100'000);
  if (!sheet) GTEST_SKIP() << "dtrain was built without libjpeg-turbo";
  EXPECT_EQ(sheet->columns, 8);
  EXPECT_EQ(sheet->picture, (PictureSize{96, 48}));
  EXPECT_EQ(sheet->cell, (PictureSize{96, 48}));
  const auto decoder = open_picture({.bytes = sheet->jpeg, .path = "sheet"});
  ASSERT_EQ(decoder->size(), (PictureSize{8 * 96, 2 * 48}));
  Picture memory;
  const PictureView whole = decoder->decode({0, 0, 8 * 96, 2 * 48}, memory);
  for (int i = 0; i < kCount; ++i) {
    const std::uint8_t* const pixel = whole.row(i / 8 * 48 + 24) + 3 * (i % 8 * 96 + 48);
    for (std::size_t c = 0; c < 3; ++c)
      EXPECT_NEAR(pixel[c], 255 * colors[static_cast<std::size_t>(i % 3)][c], 4) << i << ", " << c;
  }
}

TEST(ContactSheet, IsAsSmallAsAskedForAndOfPicturesAlone) {
  Generator generator(1);
  std::vector<float> noise(24 * 96 * 96);
  generator.uniform(std::span(noise), -3, 5);
  const auto sheet = make_contact_sheet(noise, {24, 1, 96, 96}, std::nullopt, 72'000);
  if (!sheet) GTEST_SKIP() << "dtrain was built without libjpeg-turbo";
  EXPECT_LE(sheet->jpeg.size(), 72'000U);
  EXPECT_FALSE(make_contact_sheet(noise, {12, 2, 96, 96}, std::nullopt, 72'000));
  EXPECT_FALSE(make_contact_sheet(noise, {24, 9216}, std::nullopt, 72'000));
}

}  // namespace
}  // namespace dtrain
