// Pictures packed into shards: the same pixels in the same order, under names that webdataset groups; and
// indices of shards as wds2idx writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/data/images/encode.h"
#include "runtime/data/images/files/pack.h"
#include "runtime/data/images/files/survey.h"
#include "runtime/data/images/files/wds_index.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

#ifdef DTRAIN_TEST_WITHOUT_PNG
constexpr const char* kPictures[] = {"0-420-True.jpg", "0-gray.jpg", "exif.jpg", "0-cmyk.jpg"};
#else
constexpr const char* kPictures[] = {"0-420-True.jpg", "0-gray.jpg", "exif.jpg", "0-P.png"};
#endif

std::vector<std::uint8_t> pixels_of(const EncodedPicture& picture) {
  const auto decoder = open_picture(picture);
  Picture memory;
  const PictureView view = decoder->decode({0, 0, decoder->size().width, decoder->size().height}, memory);
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < view.height; ++y)
    pixels.insert(pixels.end(), view.row(y), view.row(y) + 3 * view.width);
  return pixels;
}

class Packing : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 11; ++i) {
      const fs::path path = folder_ / "in" / (i % 3 == 0 ? "a b" : "\xc3\xa9") / (std::to_string(i) + ".jpg");
      fs::create_directories(path.parent_path());
      test::write_file(path,
                       test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / kPictures[i % 4]));
    }
    files_ = open_picture_folder((folder_ / "in").string());
  }
  PackOptions into(const std::string& name) const {
    return {.prefix = (folder_ / name).string(), .shard_bytes = 40'000, .threads = 3};
  }
  test::TempDir folder_;
  std::shared_ptr<const PictureFiles> files_;
};

TEST_F(Packing, KeepsPixelsLabelsNamesAndOrder) {
  const Packed packed = pack_pictures(*files_, into("out/s"));
  EXPECT_EQ(packed.samples, 11);
  EXPECT_GT(packed.shards.size(), 1U);
  EXPECT_EQ(packed.shards.front(), (folder_ / "out/s-000000.tar").string());
  EXPECT_EQ(static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_ / "out"), {})),
            packed.shards.size())
      << "no working files are left";
  const auto read = open_picture_shards(packed.shards, {});
  ASSERT_EQ(read->size(), files_->size());
  EXPECT_EQ(read->classes(), files_->classes());
  std::vector<std::uint8_t> one, other;
  std::int64_t smaller = 0;
  for (std::int64_t i = 0; i < read->size(); ++i) {
    EXPECT_EQ(read->label(i), files_->label(i)) << i;
    const EncodedPicture before = files_->read(i, one), after = read->read(i, other);
    EXPECT_EQ(pixels_of(before), pixels_of(after)) << before.path;
    smaller += before.bytes.size() != after.bytes.size() ? 1 : 0;
  }
  EXPECT_EQ(smaller, packed.rewritten);
  for (const PictureFacts& facts : survey(*read, 2)) {
    EXPECT_EQ(facts.bad, "");
    EXPECT_EQ(facts.progressive, false) << "a JPEG of several scans was not rewritten";
  }
}

TEST_F(Packing, IsTheSameForAnyNumberOfThreadsAndKnowsItsChecksums) {
  const Packed packed = pack_pictures(*files_, into("out/s"));
  PackOptions alone = into("other/s");
  alone.threads = 1;
  const Packed again = pack_pictures(*files_, alone);
  ASSERT_EQ(again.shards.size(), packed.shards.size());
  for (std::size_t i = 0; i < again.shards.size(); ++i)
    EXPECT_EQ(test::read_file(packed.shards[i]), test::read_file(again.shards[i]));
  std::vector<std::string> bad;
  const auto hear = [&](const std::string& message) { bad.push_back(message); };
  EXPECT_EQ(check_packed(packed.shards, hear), 11);
  EXPECT_TRUE(bad.empty());
  std::vector<std::uint8_t> memory;
  const EncodedPicture third = open_picture_shards(packed.shards, {})->read(2, memory);
  std::string content = test::read_file(third.path);
  content[static_cast<std::size_t>(third.offset) + third.bytes.size() / 2] ^= 1;
  test::write_file(third.path, content);
  check_packed(packed.shards, hear);
  EXPECT_THAT(bad, ElementsAre(AllOf(HasSubstr(third.path), HasSubstr(std::to_string(third.offset)),
                                     HasSubstr("checksum"))));
}

TEST_F(Packing, ShufflesBySeed) {
  PackOptions how = into("shuffled/s");
  how.shuffle = 7;
  const auto read = open_picture_shards(pack_pictures(*files_, how).shards, {});
  const auto order = Generator(7).permutation(files_->size());
  for (std::int64_t i = 0; i < read->size(); ++i)
    EXPECT_EQ(read->label(i), files_->label(order[static_cast<std::size_t>(i)]));
}

TEST_F(Packing, LeavesNothingWhereItFails) {
  pack_pictures(*files_, into("out/s"));
  EXPECT_THAT(message_of([&] { pack_pictures(*files_, into("out/s")); }), HasSubstr("s-000000.tar"));
  test::write_file(folder_ / "in/a b/9.jpg", "no picture");
  EXPECT_THROW(pack_pictures(*files_, into("bad/s")), DataError);
  EXPECT_TRUE(fs::is_empty(folder_ / "bad"));
  const auto facts = survey(*files_, 2);
  EXPECT_EQ(std::ranges::count_if(facts, [](const PictureFacts& one) { return !one.bad.empty(); }), 1);
}

TEST_F(Packing, NamesDuplicates) {
  const auto groups = duplicates(*files_, survey(*files_, 2));
  ASSERT_EQ(groups.size(), 4U) << "eleven files are four pictures";
  std::size_t files = 0;
  for (const auto& group : groups) files += group.size();
  EXPECT_EQ(files, 11U);
  EXPECT_TRUE(std::ranges::is_sorted(groups));
}

TEST_F(Packing, AnIndexIsWrittenReadAndNotBelievedOfAnotherShard) {
  const Packed packed = pack_pictures(*files_, into("out/s"));
  std::vector<std::string> indices;
  std::int64_t samples = 0;
  for (const std::string& shard : packed.shards) {
    indices.push_back(shard + ".idx");
    samples += write_wds_index(shard, indices.back());
  }
  EXPECT_EQ(samples, 11);
  const std::string text = test::read_file(indices.front());
  EXPECT_THAT(text, ::testing::StartsWith("v1.2 "));
  EXPECT_THAT(text, HasSubstr("\njpg 1536 "));
  EXPECT_THAT(text, HasSubstr(" 000000000.jpg cls "));
  const auto walked = open_picture_shards(packed.shards, {});
  const auto indexed = open_picture_shards(packed.shards, {.indices = indices});
  ASSERT_EQ(indexed->size(), walked->size());
  for (std::int64_t i = 0; i < walked->size(); ++i) EXPECT_EQ(indexed->place(i), walked->place(i));

  const auto refusal = [&](const std::string& content) {
    test::write_file(indices.front(), content);
    return message_of([&] { open_picture_shards(packed.shards, {.indices = indices}); });
  };
  EXPECT_THAT(refusal(test::read_file(indices.back())), HasSubstr("line"));
  EXPECT_THAT(refusal("v1.2 1\njpg 1536 9 000000000.jpg\n"),
              AllOf(HasSubstr(indices.front()), HasSubstr("line 2"), HasSubstr("another shard")));
  EXPECT_THAT(refusal("v1.2 2\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("v9 1\n"), HasSubstr("v1.1 or v1.2"));
  EXPECT_THAT(refusal("v1.2 1\njpg x\n"), HasSubstr("endings, offsets, sizes and names"));
  EXPECT_THROW(open_picture_shards(packed.shards, {.indices = {indices.front()}}), UsageError);
}

// What is not what it was is not rewritten, and never becomes other pixels.
TEST(RewriteJpeg, GivesTheSamePixelsOrNothing) {
  const std::string bytes =
      test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / "0-420-True.jpg");
  const std::vector<std::uint8_t> whole(bytes.begin(), bytes.end());
  const auto rewritten = rewrite_jpeg({whole, "x.jpg", 0});
  if (!rewritten) GTEST_SKIP() << "dtrain was built without libjpeg-turbo";
  EXPECT_EQ(pixels_of({whole, "x.jpg", 0}), pixels_of({*rewritten, "x.jpg", 0}));
  const std::string text(rewritten->begin(), rewritten->end());
  EXPECT_NE(text.find("\xff\xdd"), std::string::npos) << "no restart markers";
  EXPECT_EQ(text.find("\xff\xc2"), std::string::npos) << "still progressive";
  const std::vector<std::uint8_t> cut(whole.begin(),
                                      whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  EXPECT_FALSE(rewrite_jpeg({cut, "x.jpg", 0}));
}

// The library refuses it when its markers, more than it first has room for, are written.
TEST(RewriteJpeg, LeavesWhatTheLibraryDoesNotWrite) {
  std::string bytes = test::read_file(fs::path(std::getenv("DTRAIN_PICTURES")) / "made" / "0-444-False.jpg");
  const std::size_t table = bytes.find("\xff\xc4");  // Huffman codes: length, table, how many of 1 to 16 bits
  ASSERT_NE(table, std::string::npos);
  std::size_t codes = 0;
  for (std::size_t i = 0; i < 16; ++i) codes += static_cast<unsigned char>(bytes[table + 5 + i]);
  bytes.replace(table + 21, codes, codes, '\x0f');  // each constant term is 15 bits off the one before
  for (const std::size_t length : {3'000U, 9'000U, 60'000U}) {
    std::string marker = {'\xff', '\xfe', static_cast<char>(length >> 8), static_cast<char>(length & 0xff)};
    marker.append(length - 2, 'x');
    std::string commented = bytes;
    for (int times = 0; times < 3; ++times) commented.insert(2, marker);
    EXPECT_FALSE(rewrite_jpeg(
        {{reinterpret_cast<const std::uint8_t*>(commented.data()), commented.size()}, "x.jpg", 0}))
        << length;
  }
}

}  // namespace
}  // namespace dtrain
