// The classes of pixels must be those that Pillow reads, and their crops those of torchvision's transforms
// (masks/ and masks.json, written by make_masks.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/data/images/masks/class_map.h"
#include "tests/support/json.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::Json;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSize = 32, kShort = 37;
constexpr ClassNumbers kAny{.classes = 65535, .ignored = 65535};

std::filesystem::path folder() { return std::getenv("DTRAIN_PICTURES"); }

ClassMap read(const std::filesystem::path& path) {
  const std::string content = test::read_file(path);
  return decode_class_map(
      {{reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, path.filename().string()});
}

template <class T>
std::uint32_t crc_of(const std::vector<T>& values) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(values.data()), values.size() * sizeof(T)));
}

std::vector<std::int64_t> seen(const ClassMap& map, const std::string& augment, std::uint64_t seed) {
  const PictureTransform transform(kSize, kShort, augmentation_named(augment));
  Generator words(seed);
  KeyedGenerator generator(words);
  const DrawnChanges changes = transform.draw(map.size, generator);
  std::vector<std::int64_t> mask(kSize * kSize, -7);
  const Dims shape{kSize, kSize};
  write_classes(map, kAny, transform.seen_region(map.size, changes), changes.flip,
                {mask.data(), DType::i64, shape, contiguous_strides(shape)});
  return mask;
}

TEST(MaskParity, NumbersAndCropsAreTheirs) {
  const Json golden = Json::read(folder() / "masks.json");
  ASSERT_GE(golden["masks"].size(), 15U);
  for (const Json& expected : golden["masks"]) {
    const std::string name = expected["file"];
    SCOPED_TRACE(name);
    const ClassMap map = read(folder() / "masks" / name);
    EXPECT_EQ(map.size.width, expected["width"]);
    EXPECT_EQ(map.size.height, expected["height"]);
    EXPECT_EQ(crc_of(map.values), expected["crc32"]);
    EXPECT_EQ(crc_of(seen(map, "none", 0)), expected["evaluated"]);
    const auto trained = expected["trained"].get<std::vector<std::uint32_t>>();
    for (std::size_t seed = 0; seed < trained.size(); ++seed) {
      EXPECT_EQ(crc_of(seen(map, "imagenet", seed)), trained[seed]) << "seed " << seed;
      // Colours and erasing are drawn behind them.
      EXPECT_EQ(crc_of(seen(map, "imagenet,jitter=0.4/0.4/0.4/0.1,erase=1", seed)), trained[seed]);
    }
  }
}

TEST(MaskParity, WhatIsNoMaskIsNamed) {
  for (const auto& [file, words] : {std::pair{"0-RGB.png", "RGB of 8 bits"},
                                    {"0-LA.png", "gray with alpha of 8 bits"},
                                    {"0-RGBA.png", "RGB with alpha of 8 bits"},
                                    {"0-gray2.png", "gray of 2 bits"},
                                    {"0-420-False.jpg", "a JPEG"}}) {
    EXPECT_THAT(message_of([&, name = file] { read(folder() / "made" / name); }),
                AllOf(HasSubstr(file), HasSubstr(words)));
  }
  const ClassMap map = read(folder() / "masks/61-P.png");
  const EncodedPicture at{.bytes = {}, .path = "m.png"};
  check_class_map(map, {.classes = 21, .ignored = 255}, at);
  check_class_map(map, {.classes = 20, .ignored = 20}, at);
  EXPECT_THAT(message_of([&] { check_class_map(map, {.classes = 20, .ignored = 255}, at); }),
              AllOf(HasSubstr("m.png"), HasSubstr("from 0 to 19, or 255"), HasSubstr("20 in column")));
}

}  // namespace
}  // namespace dtrain
