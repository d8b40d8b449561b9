// Pictures in tar archives: which samples there are, where they lie, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/data/formats/tar.h"
#include "runtime/data/images/files/picture_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/first_index.h"
#include "tests/unit/data/tar_archive.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::Tar;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Shards : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    test::write_file(folder_ / name, content);
    return (folder_ / name).string();
  }
  /// "content/label" of every sample.
  std::vector<std::string> samples(const std::vector<std::string>& shards, const ShardFields& fields = {},
                                   const IndexPlace& index = {}) const {
    const auto files = open_picture_shards(shards, fields, index);
    std::vector<std::string> result;
    for (std::int64_t i = 0; i < files->size(); ++i) {
      std::vector<std::uint8_t> memory;
      const EncodedPicture picture = files->read(i, memory);
      const std::string at = test::read_file(picture.path)
                                 .substr(static_cast<std::size_t>(picture.offset), picture.bytes.size());
      const std::string content(picture.bytes.begin(), picture.bytes.end());
      EXPECT_EQ(at, content);
      result.push_back(content + "/" + std::to_string(files->label(i)));
    }
    return result;
  }
  std::string refusal(const Tar& tar, const ShardFields& fields = {}) const {
    const std::string path = write("bad.tar", tar.whole());
    return message_of([&] { open_picture_shards({path}, fields); });
  }
  test::TempDir folder_;
};

TEST_F(Shards, MembersOfOneNameAreASample) {
  Tar first, second;
  first.add("a/", "", '5').add("a/1.jpg", "one").add("a/1.cls", "3\n").add("a/1.seg.png", "mask");
  first.add("readme", "text").add(".hidden.jpg", "x").add("__meta__/x.jpg", "x").add("a/link.jpg", "", '2');
  first.add("__meta__x.jpg", "no meta").add("__meta__x.cls", "4");
  first.add("b.c/2.CLS", "0").add("b.c/2.PNG", "two");
  second.add("b.c/2.jpg", "another two").add("b.c/2.cls", "12").add("3.webp", "").add("3.cls", "1");
  const std::vector<std::string> shards = {write("0.tar", first.whole()), write("1.tar", second.bytes)};
  EXPECT_THAT(samples(shards), ElementsAre("one/3", "no meta/4", "two/0", "another two/12", "/1"));
  EXPECT_EQ(open_picture_shards(shards, {})->classes().size(), 13U);
  EXPECT_EQ(open_picture_shards(shards, {.label = "cls", .classes = 20})->classes().size(), 20U);
}

TEST_F(Shards, LabelsMayBeInJson) {
  Tar tar;
  tar.add("1.jpg", "one").add("1.json", R"({"id": "x", "class": 4})");
  EXPECT_THAT(samples({write("a.tar", tar.whole())}, {.label = "json.class"}), ElementsAre("one/4"));
  EXPECT_THAT(refusal(tar, {.label = "json.kind"}),
              AllOf(HasSubstr("bad.tar"), HasSubstr("as kind in 1.json")));
}

TEST_F(Shards, NamesAndSizesOfEveryForm) {
  const std::string long_name = std::string(150, 'd') + "/" + std::string(120, 'n');
  Tar tar;
  tar.prefix = "deep/er";
  tar.add("1.jpg", "ustar").add("deep/er/1.cls", "1");
  tar.add("././@LongLink", long_name + ".jpg" + std::string(1, '\0'), 'L').add(long_name, "gnu");
  tar.add("././@LongLink", long_name + ".cls" + std::string(1, '\0'), 'L').add(long_name, "2");
  const std::string record = "path=\u00e9/3.jpg\n";
  tar.add("x", std::to_string(record.size() + 3) + " " + record, 'x').add("e", "pax");
  tar.add("g", "19 comment=anything\n", 'g').add("\u00e9/3.cls", "3");
  tar.size_field = std::string("\x80\0\0\0\0\0\0\0\0\0\0\x06", 12);
  tar.add("4.jpg", "binary").add("4.cls", "4");
  EXPECT_THAT(samples({write("a.tar", tar.whole())}), ElementsAre("ustar/1", "gnu/2", "pax/3", "binary/4"));
  const auto files = open_picture_shards({(folder_ / "a.tar").string()}, {});
  std::vector<std::string> places;
  for (std::int64_t i = 0; i < files->size(); ++i)
    places.push_back(files->place(i).substr(folder_.path().string().size() + 1));
  EXPECT_THAT(places, ElementsAre("a.tar:deep/er/1.jpg", "a.tar:" + long_name + ".jpg", "a.tar:\u00e9/3.jpg",
                                  "a.tar:4.jpg"));
}

TEST_F(Shards, WhatCannotBeUsedIsRefusedByPlace) {
  EXPECT_THAT(refusal(Tar().add("1.jpg", "a").add("2.cls", "0")),
              AllOf(HasSubstr("bad.tar: at byte 512: expected a member 1.cls")));
  EXPECT_THAT(refusal(Tar().add("1.cls", "0")), HasSubstr("a member 1.jpg, .jpeg, .png or .webp"));
  EXPECT_THAT(refusal(Tar().add("1.jpg", "a").add("1.JPG", "b")), HasSubstr("one member 1.jpg, found two"));
  EXPECT_THAT(refusal(Tar().add("1.jpg", "a").add("1.cls", "cat")),
              AllOf(HasSubstr("a label"), HasSubstr("cat")));
  EXPECT_THAT(refusal(Tar().add("1.jpg", "a").add("1.cls", "-1")), HasSubstr("-1"));
  EXPECT_THAT(refusal(Tar().add("1.jpg", "a").add("1.cls", "7"), {.label = "cls", .classes = 7}),
              HasSubstr("from 0 to 6"));
  EXPECT_THAT(refusal(Tar().add("x", "99 path=short\n", 'x')), HasSubstr("pax"));
  EXPECT_THAT(refusal(Tar()), HasSubstr("at least one sample"));
  Tar cut;
  cut.add("1.jpg", std::string(5000, 'x'));
  cut.bytes.resize(3000);
  const std::string path = write("cut.tar", cut.bytes);
  EXPECT_THAT(message_of([&] { open_picture_shards({path}, {}); }),
              AllOf(HasSubstr("cut.tar: at byte 0"), HasSubstr("5000 bytes of 1.jpg"), HasSubstr("2488")));
  Tar damaged;
  damaged.add("1.jpg", "a").add("1.cls", "1");
  damaged.bytes[1030] ^= 1;
  EXPECT_THAT(refusal(damaged), AllOf(HasSubstr("at byte 1024"), HasSubstr("checksum")));
  EXPECT_THAT(message_of([&] { open_picture_shards({write("z.tar", "\x1f\x8b\x08 and so on")}, {}); }),
              HasSubstr("gzip"));
  EXPECT_THAT(message_of([&] { open_picture_shards({"nowhere.tar"}, {}); }), HasSubstr("nowhere.tar"));
  EXPECT_THROW(open_picture_shards({path}, {.label = "txt"}), UsageError);
}

TEST_F(Shards, AShardThatShrinksIsAnError) {
  const std::string path =
      write("a.tar", Tar().add("1.cls", "0").add("1.jpg", std::string(5000, 'x')).whole());
  const auto files = open_picture_shards({path}, {});
  fs::resize_file(path, 3000);
  std::vector<std::uint8_t> memory;
  EXPECT_THAT(message_of([&] { files->read(0, memory); }),
              AllOf(HasSubstr("a.tar: at byte 3000"), HasSubstr("as when it was indexed")));
}

TEST_F(Shards, TheIndexIsKeptUntilAShardChanges) {
  const auto age = [](const std::string& path) {
    fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  };
  const IndexPlace place{folder_ / "indices", nullptr};
  const std::string path = write("a.tar", Tar().add("1.cls", "0").add("1.jpg", "one").whole());
  EXPECT_THAT(samples({path}, {}, place), ElementsAre("one/0"));
  EXPECT_FALSE(fs::exists(place.directory));  // the shard is too young
  age(path);
  EXPECT_THAT(samples({path}, {}, place), ElementsAre("one/0"));
  EXPECT_EQ(std::distance(fs::directory_iterator(place.directory), {}), 1);
  const test::FirstIndex first(place.directory, folder_ / "first");
  EXPECT_THAT(samples({path}, {}, place), ElementsAre("one/0"));
  EXPECT_TRUE(first.is_there()) << "it was not used";
  // Other bytes with the same time, as rsync -t leaves them.
  const auto time = fs::last_write_time(path);
  write("a.tar", Tar().add("1.cls", "5").add("1.jpg", "two").whole());
  fs::last_write_time(path, time);
  EXPECT_THAT(samples({path}, {}, place), ElementsAre("two/5"));
  EXPECT_FALSE(first.is_there());
  // A damaged one is made anew.
  for (const auto& entry : fs::directory_iterator(place.directory))
    fs::resize_file(entry.path(), fs::file_size(entry.path()) - 1);
  EXPECT_THAT(samples({path}, {}, place), ElementsAre("two/5"));
}

TEST_F(Shards, AFoldersListIsKeptUntilAFolderChanges) {
  const IndexPlace place{folder_ / "indices", nullptr};
  const fs::path root = folder_ / "root";
  fs::create_directories(root / "a/deep");
  for (const char* const name : {"a/deep/1.png", "a/2.png"}) test::write_file(root / name, name);
  const auto age = [&] {
    for (const auto& folder : {root, root / "a", root / "a/deep"})
      fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::hours(1));
  };
  age();
  for (int i = 0; i < 2; ++i) {
    const auto files = open_picture_folder(root.string(), place);
    std::vector<std::uint8_t> memory;
    EXPECT_EQ(files->size(), 2);
    EXPECT_EQ(files->classes(), std::vector<std::string>{"a"});
    EXPECT_EQ(files->read(1, memory).path, (root / "a/deep/1.png").string());
    EXPECT_EQ(std::distance(fs::directory_iterator(place.directory), {}), 1);
  }
  const test::FirstIndex first(place.directory, folder_ / "first");
  EXPECT_EQ(open_picture_folder(root.string(), place)->size(), 2);
  EXPECT_EQ(open_picture_folder(root.string() + "//", place)->size(), 2);
  EXPECT_TRUE(first.is_there()) << "it was not used";
  const auto time = fs::last_write_time(root / "a/deep");
  test::write_file(root / "a/deep/0.png", "new");
  fs::last_write_time(root / "a/deep", time);  // as rsync -t sets it
  EXPECT_EQ(open_picture_folder(root.string(), place)->size(), 3);
}

TEST(ShardNames, AreExpanded) {
  EXPECT_THAT(expand_shards("s-{08..11}.tar"), ElementsAre("s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"));
  EXPECT_THAT(expand_shards("{a,b}{1..2}"), ElementsAre("a1", "a2", "b1", "b2"));
  EXPECT_THAT(expand_shards("plain.tar"), ElementsAre("plain.tar"));
  EXPECT_THROW(expand_shards("s-{1..2"), UsageError);
  EXPECT_THROW(expand_shards("s-{1}"), UsageError);
  EXPECT_THROW(expand_shards("/nowhere/*.tar"), UsageError);
}

}  // namespace
}  // namespace dtrain
