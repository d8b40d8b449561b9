// Pixels and transforms must be Pillow's and torchvision's, bit for bit (made/ and golden.json, written by
// make_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/data/images/files/orientation.h"
#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/images/resize.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/loader.h"
#include "tests/support/json.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::Json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path folder() {
  const char* path = std::getenv("DTRAIN_PICTURES");
  return path != nullptr ? path : ".";
}

bool is_left_out([[maybe_unused]] const std::string& name) {
  bool left_out = false;
#ifdef DTRAIN_TEST_WITHOUT_JPEG
  left_out |= name.ends_with(".jpg") && name != "mistyped.jpg";
#endif
#ifdef DTRAIN_TEST_WITHOUT_PNG
  left_out |= name.ends_with(".png") || name == "mistyped.jpg";
#endif
#ifdef DTRAIN_TEST_WITHOUT_WEBP
  left_out |= name.ends_with(".webp");
#endif
  return left_out;
}

/// The pictures that this build can decode, as recorded.
std::vector<Json> recorded() {
  std::vector<Json> pictures;
  const Json all = Json::read(folder() / "golden.json");
  for (const Json& picture : all["pictures"])
    if (!is_left_out(picture["file"])) pictures.push_back(picture);
  return pictures;
}

/// A file's bytes, and a decoder of them.
struct File {
  explicit File(const std::string& name) : File(name, test::read_file(folder() / "made" / name)) {}
  File(std::string name, std::string content) : path(std::move(name)), bytes(std::move(content)) {}
  std::unique_ptr<PictureDecoder> open() const {
    return open_picture({{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, path, 1000});
  }
  PictureView decode(Picture& memory) const {
    const auto decoder = open();
    return decoder->decode({0, 0, decoder->size().width, decoder->size().height}, memory);
  }
  std::string path, bytes;
};

std::uint32_t crc_of(const PictureView& view) {
  uLong crc = 0;
  for (int y = 0; y < view.height; ++y)
    crc = crc32_z(crc, view.row(y), 3 * static_cast<std::size_t>(view.width));
  return static_cast<std::uint32_t>(crc);
}

std::uint32_t crc_of_transformed(const File& file, const Augmentation& augmentation, std::uint64_t seed) {
  std::vector<float> numbers(3 * 32 * 32);
  const Dims shape{3, 32, 32};
  Generator generator(seed);
  PictureTransform(32, 37, augmentation)(*file.open(), generator,
                                         {numbers.data(), DType::f32, shape, contiguous_strides(shape)});
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(numbers.data()), numbers.size() * sizeof(float)));
}

/// `change`: [kind, amount, …]
std::uint32_t crc_of_changed(const PictureView& view, const Json& change) {
  Picture picture, spare;
  picture.resize({view.width, view.height});
  for (int y = 0; y < view.height; ++y) std::copy_n(view.row(y), picture.row_bytes(), picture.row(y));
  apply({picture_op_kind_named(change[0].get<std::string>()), change[1].get<double>()}, picture, spare);
  return crc_of(picture.view());
}

TEST(PictureParity, PixelsOfTheWholeAndOfAPart) {
  const auto pictures = recorded();
  for (const Json& expected : pictures) {
    const File file(expected["file"].get<std::string>());
    Picture memory;
    const PictureView whole = file.decode(memory);
    EXPECT_EQ(whole.width, expected["width"]) << file.path;
    EXPECT_EQ(whole.height, expected["height"]) << file.path;
    EXPECT_EQ(crc_of(whole), expected["crc32"]) << file.path;
    const auto part = expected["part"].get<std::vector<int>>();
    EXPECT_EQ(crc_of(file.open()->decode({part[0], part[1], part[2], part[3]}, memory)),
              expected["part_crc32"])
        << file.path;
  }
}

// Of one file with each orientation; recorded from Pillow's ImageOps.exif_transpose.
TEST(PictureParity, ExifTurnsPictures) {
#ifdef DTRAIN_TEST_WITHOUT_JPEG
  GTEST_SKIP() << "this build has no libjpeg-turbo";
#endif
  const auto golden = Json::read(folder() / "orientations.json");
  const std::string stored = test::read_file(folder() / "made/exif.jpg");
  const std::size_t value = stored.find(std::string("\x01\x12\x00\x03\x00\x00\x00\x01\x00", 9)) + 9;
  ASSERT_LT(value, stored.size());
  for (int orientation = 1; orientation <= 8; ++orientation) {
    std::string content = stored;
    content[value] = static_cast<char>(orientation);
    const File file("exif.jpg", content);
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    ASSERT_EQ(exif_orientation(bytes), orientation);
    const auto open = [&] { return turned_upright(file.open(), exif_orientation(bytes)); };
    const Json& expected = golden[static_cast<std::size_t>(orientation - 1)];
    Picture memory, part_memory;
    const PictureSize size = open()->size();
    EXPECT_EQ(size.width, expected["width"]);
    EXPECT_EQ(size.height, expected["height"]);
    const PictureView whole = open()->decode({0, 0, size.width, size.height}, memory);
    EXPECT_EQ(crc_of(whole), expected["crc32"]) << orientation;
    const Region region{3, 5, size.width / 2, size.height / 3};
    EXPECT_EQ(crc_of(open()->decode(region, part_memory)), crc_of(whole.part(region))) << orientation;
  }
  for (const int bad : {0, 9, 255}) {
    std::string content = stored;
    content[value] = static_cast<char>(bad);
    EXPECT_EQ(exif_orientation({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}), 1);
  }
  for (std::size_t length = 0; length < value + 8; ++length) {  // cut short anywhere
    const std::vector<std::uint8_t> cut(stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_GE(exif_orientation(cut), 1);
  }
}

TEST(PictureParity, EveryPartIsAsInTheWhole) {
  for (const std::string name : {"0-420-False.jpg", "0-420-True.jpg", "0-422-False.jpg", "0-restart.jpg",
                                 "0-cmyk.jpg", "0-interlaced.png"}) {
    if (is_left_out(name)) continue;
    const File file(name);
    Picture memory, other;
    const PictureView whole = file.decode(memory);
    for (const Region& region : {Region{0, 0, 1, 1}, Region{60, 44, 1, 1}, Region{0, 44, 61, 1},
                                 Region{60, 0, 1, 45}, Region{15, 15, 2, 2}, Region{16, 16, 16, 16},
                                 Region{17, 1, 30, 43}, Region{1, 31, 59, 14}, Region{0, 0, 61, 45}}) {
      EXPECT_EQ(crc_of(file.open()->decode(region, other)), crc_of(whole.part(region)))
          << name << " from " << region.left << ", " << region.top;
    }
  }
}

TEST(PictureParity, AProgressiveOneWithoutItsLastScansIsSmoothedAsInTheWhole) {
  if (is_left_out("0-420-True.jpg")) GTEST_SKIP() << "this build has no libjpeg-turbo";
  const std::string all = File("0-420-True.jpg").bytes;
  for (const int scans : {1, 5, 9}) {  // smoothed otherwise by other versions of the library
    std::size_t end = 0;
    for (int i = 0; i <= scans; ++i) end = all.find("\xff\xda", end + 1);
    const File file("scans.jpg", all.substr(0, end) + "\xff\xd9");
    Picture memory, other;
    const PictureView whole = file.decode(memory);
    for (const Region& region : {Region{60, 44, 1, 1}, Region{20, 15, 41, 20}, Region{40, 1, 20, 43}})
      EXPECT_EQ(crc_of(file.open()->decode(region, other)), crc_of(whole.part(region))) << scans;
  }
}

TEST(PictureParity, Resized) {
  for (const Json& expected : recorded()) {
    const File file(expected["file"].get<std::string>());
    Picture memory;
    ResizeMemory resized;
    const PictureView whole = file.decode(memory);
    for (const Json& c : expected["resized"]) {
      const Filter filter = c[2] == "bicubic" ? Filter::bicubic : Filter::bilinear;
      EXPECT_EQ(crc_of(resize(whole, {c[0], c[1]}, filter, resized)), c[3]) << file.path << " " << c.dump();
    }
  }
}

TEST(PictureParity, TransformedByEveryRecipe) {
  for (const Json& expected : recorded()) {
    const File file(expected["file"].get<std::string>());
    for (const auto& [text, crcs] : expected["transformed"].items()) {
      for (std::size_t seed = 0; seed < crcs.size(); ++seed)
        EXPECT_EQ(crc_of_transformed(file, augmentation_named(text), seed), crcs[seed])
            << file.path << " " << text << " " << seed;
    }
  }
}

TEST(PictureParity, EachChangeOfColorsAndShape) {
  int changes = 0;
  for (const Json& expected : recorded()) {
    if (!expected.contains("changed")) continue;
    const File file(expected["file"].get<std::string>());
    Picture memory;
    ResizeMemory resized;
    const PictureView whole = file.decode(memory);
    const PictureView square = resize(whole, {40, 40}, Filter::bilinear, resized);
    for (const Json& c : expected["changed"]) {
      EXPECT_EQ(crc_of_changed(whole, c), c[2]) << file.path << " " << c.dump();
      EXPECT_EQ(crc_of_changed(square, c), c[3]) << file.path << " " << c.dump();
      ++changes;
    }
  }
  EXPECT_GT(changes, is_left_out("0-RGB.png") && is_left_out("wide.jpg") ? -1 : 50);
}

/// The recorded pictures, each a class of its own.
class MadeFiles final : public PictureFiles {
 public:
  MadeFiles() {
    for (const Json& picture : recorded()) {
      classes_.push_back(picture["file"]);
      contents_.push_back(test::read_file(folder() / "made" / classes_.back()));
    }
  }
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(classes_.size()); }
  const std::vector<std::string>& classes() const noexcept override { return classes_; }
  std::int64_t label(std::int64_t index) const noexcept override { return index; }
  std::string place(std::int64_t index) const override { return classes_[static_cast<std::size_t>(index)]; }
  EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>&) const override {
    const auto at = static_cast<std::size_t>(index);
    return {{reinterpret_cast<const std::uint8_t*>(contents_[at].data()), contents_[at].size()},
            classes_[at]};
  }

 private:
  std::vector<std::string> classes_, contents_;
};

class LoadedLikeTorch : public testing::Test {
 protected:
  LoadedLikeTorch() {
    const auto files = std::make_shared<MadeFiles>();
    source_ = std::make_shared<PictureSource>(
        "made", files, PictureOptions{32, 37, augmentation_named(golden_["augment"].get<std::string>())},
        std::make_shared<BadSamples>(OnBadSample::stop, files->size(), nullptr));
  }
  void SetUp() override {
    if (source_->size() != static_cast<std::int64_t>(golden_["pictures"].size()))
      GTEST_SKIP() << "skipped: built without libjpeg-turbo, libpng or libwebp";
  }
  Loader loader(int workers, int threads) const {
    return {source_,
            make_device("cpu"),
            {.batch_size = 5, .threads = threads, .prefetch = 3, .seed = 3, .torch_workers = workers}};
  }
  void expect_epoch(Loader& loader, int workers, std::int64_t epoch, std::int64_t first) const {
    const Json& expected = golden_["loaded"][std::to_string(workers)][static_cast<std::size_t>(epoch)];
    loader.start(expected["order"].get<std::vector<std::int64_t>>(), epoch, first);
    auto number = static_cast<std::size_t>(first);
    while (const auto batch = loader.next(Deadline::after(std::chrono::seconds(60)))) {
      const View& images = (*batch)["image"];
      EXPECT_EQ(crc32_z(0, images.as<Bytef>(), static_cast<std::size_t>(images.numel()) * sizeof(float)),
                expected["batches"][number])
          << workers << " workers, epoch " << epoch << ", batch " << number;
      ++number;
    }
    EXPECT_EQ(number, expected["batches"].size());
  }
  Json golden_ = Json::read(folder() / "golden.json");
  std::shared_ptr<const PictureSource> source_;
};

TEST_F(LoadedLikeTorch, BatchesOfAnyNumberOfItsWorkers) {
  for (const int workers : {0, 1, 4}) {
    for (const int threads : {0, 1, 3}) {
      Loader reads = loader(workers, threads);
      for (const std::int64_t epoch : {0, 1}) expect_epoch(reads, workers, epoch, 0);
    }
  }
}

TEST_F(LoadedLikeTorch, FromTheMiddleOfAnEpochAsFromItsBeginning) {
  for (const int threads : {0, 2}) {
    Loader reads = loader(4, threads);
    for (const std::int64_t first : {1, 3, 6, 7}) expect_epoch(reads, 4, 1, first);
    expect_epoch(reads, 4, 0, 0);
  }
}

TEST(Pictures, OnesCutShortAreRefusedForEveryPart) {
  for (const Json& expected : recorded()) {
    const File whole(expected["file"].get<std::string>());
    std::vector<std::size_t> ends = {0, 2, 20, whole.bytes.size() / 2};
    if (whole.bytes.starts_with("\xff\xd8")) ends.push_back(whole.bytes.size() - 2);
    for (const std::size_t end : ends) {
      const File cut("cut.jpg", whole.bytes.substr(0, end));
      Picture memory;
      EXPECT_THAT(test::message_of([&] {
                    cut.open()->decode({0, 0, 1, 1}, memory);
                  }),
                  AllOf(HasSubstr("cut.jpg"), HasSubstr("expected")))
          << whole.path << " until " << end;
    }
  }
}

TEST(Pictures, WhatIsNoneIsRefusedByWhatItIs) {
  const auto message = [](const std::string& content) {
    return test::message_of([&] { File("x.jpg", content).open(); });
  };
  EXPECT_THAT(message(""),
              AllOf(HasSubstr("x.jpg"), HasSubstr("JPEG, PNG or WebP"), HasSubstr("an empty file")));
  EXPECT_THAT(message("GIF89a..."), HasSubstr("GIF"));
  EXPECT_THAT(message("II*.    "), HasSubstr("TIFF"));
  EXPECT_THAT(message("hello, world"), HasSubstr("68 65 6c 6c 6f"));
}

TEST(Pictures, RegionsOutsideAreRefused) {
  if (is_left_out("0-RGB.png")) GTEST_SKIP() << "built without libpng";
  const File file("0-RGB.png");
  Picture memory;
  for (const Region& region : {Region{0, 0, 0, 1}, Region{-1, 0, 5, 5}, Region{57, 0, 5, 5},
                               Region{0, 41, 5, 5}, Region{1, 0, INT32_MAX, 1}})
    EXPECT_THROW(file.open()->decode(region, memory), UsageError) << region.left;
}

/// `side` as a number of `count` bytes, the highest first.
std::string big_endian(std::uint32_t side, int count) {
  std::string bytes;
  while (count-- > 0) bytes += static_cast<char>(side >> (8 * count));
  return bytes;
}

/// A PNG whose header says that it has `side` rows and columns.
std::string png_of(std::uint32_t side) {
  std::string bytes = File("0-RGB.png").bytes;
  for (const std::size_t at : {std::size_t{16}, std::size_t{20}}) bytes.replace(at, 4, big_endian(side, 4));
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + 12), 17);
  return bytes.replace(29, 4, big_endian(static_cast<std::uint32_t>(crc), 4));
}

/// A JPEG whose header says so.
std::string jpeg_of(std::uint32_t side) {
  std::string bytes = File("0-420-False.jpg").bytes;
  const std::size_t frame = bytes.find("\xff\xc0");
  return bytes.replace(frame + 5, 4, big_endian(side, 2) + big_endian(side, 2));
}

TEST(Pictures, MoreThanPillowDecodesAreRefusedByTheHeader) {
  const auto refusal = [](const std::string& name, const std::string& bytes) {
    return test::message_of([&] { File(name, bytes).open(); });
  };
  if (!is_left_out("0-RGB.png")) {
    for (const std::uint32_t side : {60'000U, 100'000U})
      EXPECT_THAT(refusal("bomb.png", png_of(side)),
                  AllOf(HasSubstr("bomb.png"), HasSubstr("178956970"),
                        HasSubstr(std::to_string(side) + " x " + std::to_string(side))));
  }
  if (!is_left_out("0-420-False.jpg")) {
    EXPECT_THAT(refusal("bomb.jpg", jpeg_of(65'000)),
                AllOf(HasSubstr("bomb.jpg"), HasSubstr("178956970"), HasSubstr("65000 x 65000")));
  }
}

TEST(Pictures, OnesWithoutPixelsAreRefusedByTheHeader) {
  using Made = std::pair<const char*, std::string (*)(std::uint32_t)>;
  for (const auto& [name, made] : {Made{"0-RGB.png", png_of}, {"0-420-False.jpg", jpeg_of}}) {
    if (is_left_out(name)) continue;
    EXPECT_THROW(File("none", made(0)).open(), DataError) << name;
    EXPECT_THAT(test::message_of([&] { File("none", made(0)).open(); }), HasSubstr("none: at byte ")) << name;
  }
}

std::string little_endian(std::uint32_t value, int bytes) {
  std::string text;
  for (; bytes > 0; --bytes, value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}

std::string webp_chunk(const std::string& name, const std::string& content) {
  const std::string whole = name + little_endian(static_cast<std::uint32_t>(content.size()), 4) + content;
  return whole + std::string(content.size() % 2, '\0');
}

/// A WebP animation on a canvas of 90 x 80 pixels whose first frame is the picture of 61 x 45 in `file`, from
/// (10, 6) on.
std::string animation_of(const std::string& file, const std::string& frame_name = "ANMF",
                         std::uint32_t left = 10, std::uint32_t width = 61) {
  constexpr std::size_t kHeader = 12, kExtended = 18;
  const std::string chunks =
      file.substr(file.compare(kHeader, 4, "VP8X") == 0 ? kHeader + kExtended : kHeader);
  const std::string place = little_endian(left / 2, 3) + little_endian(3, 3) + little_endian(width - 1, 3) +
                            little_endian(44, 3) + little_endian(100, 3) + std::string(1, '\0');
  return webp_chunk("RIFF", "WEBP" +
                                webp_chunk("VP8X", std::string("\x12\0\0\0", 4) + little_endian(89, 3) +
                                                       little_endian(79, 3)) +
                                webp_chunk("ANIM", std::string(6, '\x55')) +
                                webp_chunk(frame_name, place + chunks) + webp_chunk("ANMF", "another frame"));
}

TEST(Pictures, AnAnimationIsItsFirstFrame) {
  constexpr int kLeft = 10, kTop = 6;
  for (const char* const name : {"0-lossy.webp", "0-lossless.webp", "0-alpha.webp"}) {
    if (is_left_out(name)) continue;
    const File still(name), animation("animation.webp", animation_of(still.bytes));
    Picture still_memory, memory;
    const PictureView expected = still.decode(still_memory), whole = animation.decode(memory);
    ASSERT_EQ(expected.width, 61);
    ASSERT_EQ(expected.height, 45);
    EXPECT_EQ(whole.width, 90);
    EXPECT_EQ(whole.height, 80);
    for (int y = 0; y < whole.height; ++y) {
      std::vector<std::uint8_t> row(3 * 90);
      if (y >= kTop && y < kTop + 45) std::copy_n(expected.row(y - kTop), 3 * 61, row.begin() + 3 * kLeft);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), whole.row(y))) << name << ", row " << y;
    }
    Picture part;
    EXPECT_EQ(crc_of(animation.open()->decode({kLeft, kTop, 61, 45}, part)), crc_of(expected)) << name;
    const std::string cut = animation.bytes.substr(0, animation.bytes.size() - 1);
    for (const std::string& bad :
         {cut, animation_of(still.bytes, "NONE"), animation_of(still.bytes, "ANMF", 30),
          animation_of(still.bytes, "ANMF", 10, 60), animation_of(std::string(12, '\0'))}) {
      EXPECT_THAT(test::message_of([&] { File("bad.webp", bad).open(); }),
                  AllOf(HasSubstr("bad.webp: at byte 1000"), HasSubstr("a whole first frame")));
    }
  }
}

// FFCV's get_resolution() of ffcv-imagenet, with numpy's rounding of halves to even multiples.
TEST(Pictures, GrowAsFfcvsDo) {
  const auto sizes = [](const char* text, int epochs) {
    std::vector<int> all;
    for (int epoch = 0; epoch < epochs; ++epoch) all.push_back(augmentation_named(text).size.at(epoch));
    return all;
  };
  EXPECT_THAT(sizes("size=160/192/2/4", 6), ElementsAre(160, 160, 160, 192, 192, 192));  // 176 is 5.5 steps
  EXPECT_THAT(sizes("size=96/192/1/7", 9), ElementsAre(96, 96, 128, 128, 128, 160, 192, 192, 192));
  EXPECT_THAT(sizes("size=192/100/0/3", 5), ElementsAre(192, 160, 128, 100, 100));
  EXPECT_THAT(sizes("size=20/24/0/2", 3), ElementsAre(20, 24, 24));  // not the 32 beyond both
  EXPECT_THAT(sizes("size=160/192/3/3", 6), ElementsAre(160, 160, 160, 160, 192, 192));
  EXPECT_THAT(sizes("size=176", 2), ElementsAre(176, 176));
}

TEST(Pictures, AugmentationsByName) {
  for (const std::string_view name : augmentation_presets())
    EXPECT_EQ(name_of(augmentation_named(name)), name);
  const std::string steps = "crop,flip,jitter=0.4/0.4/0.4/0.1,randaugment=2/9,erase=0.25,size=160/192/11/13";
  EXPECT_EQ(name_of(augmentation_named(steps)), steps);
  EXPECT_EQ(augmentation_named("randaugment"), augmentation_named("none,randaugment=2/9"));
  EXPECT_EQ(augmentation_named("imagenet,trivialaugment,erase=0.1"), augmentation_named("imagenet-v2"));
  for (const std::string wrong : {"all",
                                  "",
                                  "crop,",
                                  "crop=1",
                                  "flip,imagenet",
                                  "erase=1.5",
                                  "erase",
                                  "erase=-0.1",
                                  "jitter=1/1/1",
                                  "jitter=0/0/0/0.6",
                                  "randaugment=0/9",
                                  "randaugment=2/31",
                                  "randaugment=1.5/9",
                                  "jitter=a/b/c/d",
                                  "crop=nan",
                                  "erase=nan",
                                  "size",
                                  "size=0",
                                  "size=16385",
                                  "size=1.5",
                                  "size=160/192",
                                  "size=160/192/13/11",
                                  "size=0/192/1/2",
                                  "size=160/16385/1/2",
                                  "size=160/192/1/1000001"})
    EXPECT_THAT(
        test::message_of([&] { augmentation_named(wrong); }),
        AllOf(HasSubstr("imagenet-v2"), HasSubstr("erase=PROBABILITY"), HasSubstr("\"" + wrong + "\"")))
        << wrong;
  EXPECT_EQ(name_of(augmentation_named("imagenet,size=176")), "crop,flip,size=176");
  EXPECT_EQ(augmentation_named("size=176"), augmentation_named("size=176/176/3/9"));
  EXPECT_THROW(PictureTransform(0, 1, {}), UsageError);
  EXPECT_THROW(PictureTransform(33, 32, {}), UsageError);
  EXPECT_THROW(picture_op_kind_named("twirl"), UsageError);
}

}  // namespace
}  // namespace dtrain
