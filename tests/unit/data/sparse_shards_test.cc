// Sparse files in tar archives: the content that GNU tar and Python's tarfile give, and maps that are
// damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/formats/tar.h"
#include "runtime/data/images/files/kept_index.h"
#include "runtime/data/images/files/masked_files.h"
#include "runtime/data/images/files/wds_index.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/first_index.h"
#include "tests/unit/data/tar_archive.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::Tar;
using test::text_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* k2To63 = "9223372036854775808";

/// Where a piece is in its file, and its bytes.
using Map = std::vector<std::pair<std::size_t, std::string>>;

struct Sparse {
  std::string name;
  std::size_t size = 0;  ///< with holes
  Map map = {};

  std::string content() const {
    std::string whole(size, '\0');
    for (const auto& [at, bytes] : map) whole.replace(at, bytes.size(), bytes);
    return whole;
  }
  std::string stored() const {
    std::string bytes;
    for (const auto& piece : map) bytes += piece.second;
    return bytes;
  }
  std::string numbers(char between) const {
    std::string text;
    for (const auto& [at, bytes] : map)
      text += std::to_string(at) + between + std::to_string(bytes.size()) + between;
    return text;
  }
};

std::string entry(std::size_t at, std::size_t bytes) {
  return Tar::octal(at, 11) + std::string(1, '\0') + Tar::octal(bytes, 11) + std::string(1, '\0');
}

/// Blocks of an old map behind the header, 21 entries each, of which the last says that none follows.
std::string old_blocks(const std::string& entries) {
  constexpr std::size_t kEntries = std::size_t{21} * 24;
  std::string blocks;
  for (std::size_t at = 0; at < entries.size(); at += kEntries) {
    std::string block = entries.substr(at, kEntries);
    block.resize(Tar::kBlock);
    block[kEntries] = at + kEntries < entries.size() ? '\1' : '\0';
    blocks += block;
  }
  return blocks;
}

void add_old(Tar& tar, const Sparse& file) {
  constexpr std::size_t kInHeader = std::size_t{4} * 24;
  std::string entries;
  for (const auto& [at, bytes] : file.map) entries += entry(at, bytes.size());
  std::string in_header = entries.substr(0, kInHeader);
  in_header.resize(kInHeader);
  const std::string more = entries.substr(std::min(entries.size(), kInHeader));
  tar.map_field = in_header + (more.empty() ? '\0' : '\1') + Tar::octal(file.size, 11);
  tar.behind_header = old_blocks(more);
  tar.add(file.name, file.stored(), 'S');
}

void add_0_0(Tar& tar, const Sparse& file) {
  std::vector<std::pair<std::string, std::string>> records = {
      {"GNU.sparse.size", std::to_string(file.size)},
      {"GNU.sparse.numblocks", std::to_string(file.map.size())}};
  for (const auto& [at, bytes] : file.map) {
    records.emplace_back("GNU.sparse.offset", std::to_string(at));
    records.emplace_back("GNU.sparse.numbytes", std::to_string(bytes.size()));
  }
  tar.pax(records).add(file.name, file.stored());
}

void add_0_1(Tar& tar, const Sparse& file) {
  std::string map = file.numbers(',');
  if (!map.empty()) map.pop_back();
  tar.pax({{"GNU.sparse.size", std::to_string(file.size)},
           {"GNU.sparse.numblocks", std::to_string(file.map.size())},
           {"GNU.sparse.name", file.name},
           {"path", "./GNUSparseFile.17/other"},
           {"GNU.sparse.map", map}});
  tar.add("./GNUSparseFile.17/x", file.stored());
}

void add_1_0(Tar& tar, const Sparse& file) {
  std::string map = std::to_string(file.map.size()) + "\n" + file.numbers('\n');
  map.resize((map.size() + Tar::kBlock - 1) / Tar::kBlock * Tar::kBlock);
  tar.pax({{"GNU.sparse.major", "1"},
           {"GNU.sparse.minor", "0"},
           {"GNU.sparse.name", file.name},
           {"GNU.sparse.realsize", std::to_string(file.size)}});
  tar.add("./GNUSparseFile.17/x", map + file.stored());
}

struct Form {
  const char* name;
  void (*add)(Tar&, const Sparse&);
};

class SparseFiles : public ::testing::Test {
 protected:
  static Sparse in_pieces(const std::string& name, std::size_t pieces) {
    Sparse file{name, 100 * pieces + 7};
    for (std::size_t i = 0; i < pieces; ++i)
      file.map.emplace_back(100 * i + 10, std::string(1 + i % 50, static_cast<char>('a' + i % 26)));
    return file;
  }
  std::string write(const std::string& name, const Tar& tar) const {
    test::write_file(folder_ / name, tar.whole());
    return (folder_ / name).string();
  }
  static std::string content(const PictureFiles& files, std::int64_t index) {
    std::vector<std::uint8_t> memory(3, 'x');
    const EncodedPicture picture = files.read(index, memory);
    return {picture.bytes.begin(), picture.bytes.end()};
  }
  test::TempDir folder_;
};

class SparseShards : public SparseFiles, public ::testing::WithParamInterface<Form> {};

TEST_P(SparseShards, HaveTheirContentWithHoles) {
  const Sparse files[] = {{"0.jpg", 1000, {{100, "begin"}, {400, std::string(300, 'm')}}},
                          {"1.jpg", 40000, {}},
                          {"2.jpg", 5, {{0, "whole"}}},
                          {"3.jpg", 600, {{0, "front"}, {595, "back."}, {600, ""}}},
                          in_pieces("4.jpg", 5),
                          in_pieces("5.jpg", 26),
                          in_pieces("6.jpg", 200),
                          {"7.jpg", 0, {}}};
  Tar tar;
  for (const Sparse& file : files) {
    GetParam().add(tar, file);
    GetParam().add(tar, {file.name.substr(0, 2) + "cls", 1, {{0, file.name.substr(0, 1)}}});
  }
  tar.add("8.jpg", "dense").add("8.cls", "8");
  const auto shards = open_picture_shards({write("a.tar", tar)}, {});
  ASSERT_EQ(shards->size(), 9);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(content(*shards, i), files[i].content()) << i;
    EXPECT_EQ(shards->label(i), i);
  }
  EXPECT_EQ(content(*shards, 8), "dense");
}

TEST_P(SparseShards, AreKeptInAnIndex) {
  Tar tar;
  const Sparse mask = in_pieces("0.seg.png", 30), picture = in_pieces("0.jpg", 6);
  GetParam().add(tar, mask);
  GetParam().add(tar, picture);
  tar.add("1.jpg", "dense").add("1.seg.png", "mask");
  const std::string path = write("a.tar", tar);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  const IndexPlace place{folder_ / "indices", nullptr};
  std::optional<test::FirstIndex> first;
  for (const bool kept : {false, true}) {
    if (kept) first.emplace(place.directory, folder_ / "first");
    const auto shards = open_masked_shards({path}, {.mask = "seg.png"}, place);
    std::vector<std::uint8_t> memory;
    EXPECT_EQ(content(*shards, 0), picture.content());
    const EncodedPicture found = shards->read_mask(0, memory);
    EXPECT_EQ(std::string(found.bytes.begin(), found.bytes.end()), mask.content());
    EXPECT_EQ(content(*shards, 1), "dense");
  }
  EXPECT_TRUE(first->is_there()) << "it was not used";
  EXPECT_EQ(std::distance(fs::directory_iterator(place.directory), {}), 1);
}

TEST_P(SparseShards, WithADamagedMapAreRefusedByPlace) {
  const std::string path = (folder_ / "bad.tar").string();
  const auto refusal = [&](const Sparse& file) {
    Tar tar;
    tar.add("0.jpg", "a").add("0.cls", "0");
    GetParam().add(tar, file);
    write("bad.tar", tar.add("1.cls", "1"));
    return text_of<DataError>([&] { open_picture_shards({path}, {}); });
  };
  const auto of_map = AllOf(HasSubstr("bad.tar: at byte "), HasSubstr("a map of the sparse file 1.jpg"));
  EXPECT_THAT(refusal({"1.jpg", 100, {{0, "abcd"}, {3, "overlaps"}}}), of_map);
  EXPECT_THAT(refusal({"1.jpg", 100, {{50, "abcd"}, {10, "before"}}}), of_map);
  EXPECT_THAT(refusal({"1.jpg", 100, {{98, "abcd"}}}), of_map);
  EXPECT_THAT(refusal({"1.jpg", 100, {{101, ""}}}), of_map);
  EXPECT_THAT(refusal({"1.jpg", (std::size_t{1} << 30) + 1, {{5, "abcd"}}}),
              AllOf(HasSubstr("bad.tar: at byte "), HasSubstr("at most 1073741824 bytes"),
                    HasSubstr("1.jpg, which has 1073741825")));
}

TEST_P(SparseShards, HaveNoWdsIndex) {
  Tar tar;
  tar.add("0.jpg", "a").add("0.cls", "0");
  const Sparse file{"1.jpg", 100, {{0, "abcd"}, {50, "ef"}}};
  GetParam().add(tar, file);
  tar.add("1.cls", "1");
  const std::string path = write("a.tar", tar);
  EXPECT_THAT(text_of<DataError>([&] { write_wds_index(path, path + ".idx"); }),
              AllOf(HasSubstr("a.tar: at byte "), HasSubstr("the sparse file 1.jpg")));
  EXPECT_FALSE(fs::exists(path + ".idx"));
  // As wds2idx writes it: where the stored bytes begin, and the size with holes.
  std::int64_t begin = 0;
  TarReader(path).for_each([&](const TarMember& member) {
    if (member.name == "1.jpg") begin = member.offset;
  });
  test::write_file(path + ".idx", "v1.1 1\njpg " + std::to_string(begin) + " 100\n");
  EXPECT_THAT(text_of<DataError>([&] { open_picture_shards({path}, {.indices = {path + ".idx"}}); }),
              AllOf(HasSubstr("line 2"), HasSubstr("is a sparse file")));
}

INSTANTIATE_TEST_SUITE_P(Forms, SparseShards,
                         ::testing::Values(Form{"old", add_old}, Form{"v0_0", add_0_0}, Form{"v0_1", add_0_1},
                                           Form{"v1_0", add_1_0}),
                         [](const auto& form) { return std::string(form.param.name); });

class SparseMaps : public SparseFiles {
 protected:
  /// Of an archive with the members of `tar`.
  std::string refusal(const Tar& tar) const {
    const std::string path = write("bad.tar", tar);
    return text_of<DataError>([&] { open_picture_shards({path}, {}); });
  }
};

TEST_F(SparseMaps, ThatAreNotAsLongAsWhatIsStored) {
  for (const std::size_t bytes : {2, 4}) {
    Tar tar;
    tar.map_field = entry(0, 3) + entry(20, bytes) + std::string(48, '\0') + '\0' + Tar::octal(100, 11);
    EXPECT_THAT(refusal(tar.add("1.jpg", "abcdef", 'S')),
                AllOf(HasSubstr("bad.tar: at byte 0"), HasSubstr("together as long as what is stored")));
  }
}

TEST_F(SparseMaps, OfNumbersThatAreNone) {
  Tar tar;
  tar.map_field = entry(0, 3).replace(3, 1, "9");
  EXPECT_THAT(refusal(tar.add("1.jpg", "abc", 'S')), HasSubstr("a map of the sparse file"));
  tar = {};
  tar.map_field = entry(0, 3) + std::string(72, '\0') + '\0' + "no size";
  EXPECT_THAT(refusal(tar.add("1.jpg", "abc", 'S')), HasSubstr("a map of the sparse file"));
  const std::string two_to_63("\x80\0\0\0\x80\0\0\0\0\0\0\0", 12);  // of the base 256
  tar = {};
  tar.map_field = entry(0, 3) + std::string(72, '\0') + '\0' + two_to_63;
  EXPECT_THAT(refusal(tar.add("1.jpg", "abc", 'S')), HasSubstr("a map of the sparse file"));
  tar = {};
  tar.map_field = entry(0, 0) + two_to_63 + entry(0, 3).substr(12);
  tar.map_field += std::string(96 - tar.map_field.size(), '\0') + '\0' + Tar::octal(100, 11);
  EXPECT_THAT(refusal(tar.add("1.jpg", "abc", 'S')), HasSubstr("a map of the sparse file"));
  const auto pax = [&](const std::vector<std::pair<std::string, std::string>>& records) {
    return refusal(Tar().pax(records).add("1.jpg", "abc"));
  };
  for (const char* const number : {k2To63, "-1", "", "3x", " 3"}) {
    EXPECT_THAT(
        pax({{"GNU.sparse.size", number}}),
        AllOf(HasSubstr("at byte 512: expected records of a pax header"), HasSubstr("GNU.sparse.size")))
        << number;
    EXPECT_THAT(pax({{"GNU.sparse.map", std::string("0,3,") + number + ",1"}}), HasSubstr("GNU.sparse.map"));
    EXPECT_THAT(pax({{"GNU.sparse.offset", number}}), HasSubstr("GNU.sparse.offset"));
    EXPECT_THAT(pax({{"GNU.sparse.offset", "1"}, {"GNU.sparse.numbytes", number}}), HasSubstr("numbytes"));
  }
  EXPECT_THAT(pax({{"GNU.sparse.map", "0,3,5"}}), HasSubstr("GNU.sparse.map"));
  EXPECT_THAT(pax({{"GNU.sparse.numbytes", "1"}}), HasSubstr("numbytes"));
  EXPECT_THAT(pax({{"GNU.sparse.offset", "1"}, {"GNU.sparse.offset", "1"}}), HasSubstr("offset"));
  EXPECT_THAT(pax({{"GNU.sparse.map", "0,3"}}), HasSubstr("the size of the sparse file 1.jpg, found none"));
  EXPECT_THAT(pax({{"GNU.sparse.major", "2"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.realsize", "3"}}),
              AllOf(HasSubstr("at byte 1536"), HasSubstr("found version 2.0")));
  // The largest size there is, and pieces at its end.
  EXPECT_THAT(pax({{"GNU.sparse.size", "9223372036854775807"},
                   {"GNU.sparse.map", "9223372036854775806,1,9223372036854775807,2"}}),
              HasSubstr("a map of the sparse file"));
  EXPECT_THAT(
      pax({{"GNU.sparse.size", "9223372036854775807"}, {"GNU.sparse.map", "0,2,9223372036854775806,1"}}),
      HasSubstr("a member 1.cls, found none"));
}

TEST_F(SparseMaps, InFrontOfTheContent) {
  const auto refused = [&](std::string map) {
    map.resize(Tar::kBlock);
    return refusal(
        Tar()
            .pax({{"GNU.sparse.minor", "0"}, {"GNU.sparse.major", "1"}, {"GNU.sparse.realsize", "9"}})
            .add("1.jpg", map + "abc"));
  };
  EXPECT_THAT(refused("1\n0\n3\n"), HasSubstr("a member 1.cls, found none"));
  for (const char* const map :
       {"", "\n", "x\n", "1\n0\n-3\n", "1\n0\n9223372036854775808\n", "9223372036854775807\n0\n3\n",
        "1048577\n0\n3\n", "00000000000000000001\n", "9\n0\n3\n"}) {
    EXPECT_THAT(refused(map),
                AllOf(HasSubstr("bad.tar: at byte 1536"), HasSubstr("a map of the sparse file 1.jpg")))
        << map;
  }
  std::string too_long = "400\n";
  while (too_long.size() < Tar::kBlock) too_long += "0\n";
  EXPECT_THAT(refused(too_long),
              AllOf(HasSubstr("bad.tar: at byte 2048"), HasSubstr("a map of the sparse file 1.jpg")));
}

TEST_F(SparseMaps, ThatDoNotEnd) {
  Tar tar;
  tar.map_field = std::string(96, '\0') + '\1' + Tar::octal(100, 11);
  for (int i = 0; i < 1000; ++i) tar.behind_header += std::string(504, '\0') + '\1' + std::string(7, '\0');
  const std::string path = (folder_ / "bad.tar").string();
  test::write_file(path, tar.add("1.jpg", "", 'S').bytes);
  EXPECT_THAT(text_of<DataError>([&] { open_picture_shards({path}, {}); }),
              HasSubstr("bad.tar: at byte 512512: expected 512 more bytes of the archive, found its end"));
  // One entry more than there may be.
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::string block;
  for (int i = 0; i < 21; ++i) block += entry(0, 0);
  block += '\1' + std::string(7, '\0');
  tar = {};
  tar.map_field = std::string(96, '\0') + '\1' + Tar::octal(100, 11);
  for (std::size_t i = 0; i <= kMost / 21; ++i) tar.behind_header += block;
  EXPECT_THAT(refusal(tar.add("1.jpg", "", 'S')),
              AllOf(HasSubstr("bad.tar: at byte 0"), HasSubstr("a map of the sparse file 1.jpg")));
}

TEST_F(SparseMaps, AShardThatShrinksIsAnError) {
  Tar tar;
  add_old(tar, {"1.jpg", 9000, {{0, "abc"}, {5000, std::string(4000, 'x')}}});
  const std::string path = write("a.tar", tar.add("1.cls", "1"));
  const auto files = open_picture_shards({path}, {});
  fs::resize_file(path, 2000);
  EXPECT_THAT(text_of<DataError>([&] { content(*files, 0); }),
              AllOf(HasSubstr("a.tar: at byte 2000"), HasSubstr("as when it was indexed")));
}

// Solaris writes X for x.
TEST_F(SparseMaps, HeadersOfSolaris) {
  Tar tar;
  tar.pax({{"path", "1.jpg"}}, 'X').add("other", "content").add("1.cls", "1");
  EXPECT_EQ(content(*open_picture_shards({write("a.tar", tar)}, {}), 0), "content");
}

// An index of shards without sparse files is what it was before there were any.
TEST_F(SparseMaps, AnEarlierIndexIsRead) {
  struct {
    std::int32_t shard = 0, label = 3;
    std::int64_t offset = 512, bytes = 4;
  } const place;
  Tar tar;
  const std::string path = write("a.tar", tar.add("1.jpg", "picture").add("1.cls", "1"));
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  IndexWriter writer;
  writer.add(std::span(&place, 1));
  writer.add(std::int64_t{0});
  const IndexPlace indices{folder_ / "indices", nullptr};
  KeptIndex(indices.directory, "shards label=cls " + path)
      .keep(std::vector{stamp_of(path)}, writer.bytes(), nullptr);
  const auto files = open_picture_shards({path}, {}, indices);
  EXPECT_EQ(content(*files, 0), "pict") << "the index was made anew";
  EXPECT_EQ(files->label(0), 3);
}

}  // namespace
}  // namespace dtrain
