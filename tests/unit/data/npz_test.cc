// NumPy's archives of arrays: stored and deflated members, 64-bit sizes, what --dataset npy:FILE.npz means,
// and refusals that name file, offset, expected and found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/formats/npz.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain {
namespace {

using test::data_error_of;
using test::npy_bytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}

/// Writes archives as Python's zipfile does for numpy.
class Zip {
 public:
  bool deflate = false;
  bool long_sizes = false;  ///< 64-bit ones in the directory, too
  int flags = 0, method = -1;

  Zip& add(const std::string& name, const std::string& content) {
    const std::string stored = deflate ? test::deflated(content) : content;
    const std::string kind = little(static_cast<std::uint64_t>(method >= 0 ? method : deflate ? 8 : 0), 2);
    const auto crc =
        ::crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    const std::string middle =
        little(static_cast<std::uint64_t>(flags), 2) + kind + little(0, 4) + little(crc, 4);
    const std::string full = little(UINT32_MAX, 4);
    const std::string sizes = little(content.size(), 8) + little(stored.size(), 8);
    const std::uint64_t at = bytes.size();
    // numpy forces 64-bit sizes in the members' own headers.
    bytes += "PK\3\4" + little(45, 2) + middle + full + full + little(name.size(), 2) + little(20, 2) + name +
             little(1, 2) + little(16, 2) + sizes + stored;
    const std::string extra =
        long_sizes ? little(7, 2) + little(2, 2) + "xx" + little(1, 2) + little(24, 2) + sizes + little(at, 8)
                   : "";
    directory += "PK\1\2" + little(45, 2) + little(45, 2) + middle +
                 (long_sizes ? full + full : little(stored.size(), 4) + little(content.size(), 4)) +
                 little(name.size(), 2) + little(extra.size(), 2) + little(3, 2) + little(0, 8) +
                 (long_sizes ? full : little(at, 4)) + name + extra + "any";
    ++members;
    return *this;
  }
  std::string whole(const std::string& comment = "") const {
    std::string all = bytes + directory, end = little(members, 2) + little(members, 2);
    if (long_sizes) {
      all += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(members, 8) +
             little(members, 8) + little(directory.size(), 8) + little(bytes.size(), 8);
      all += "PK\6\7" + little(0, 4) + little(bytes.size() + directory.size(), 8) + little(1, 4);
      end += little(UINT32_MAX, 4) + little(UINT32_MAX, 4);
    } else {
      end += little(directory.size(), 4) + little(bytes.size(), 4);
    }
    return all + "PK\5\6" + little(0, 4) + end + little(comment.size(), 2) + comment;
  }

  std::string bytes, directory;
  std::uint64_t members = 0;
};

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

class Npz : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    test::write_file(folder_ / name, content);
    return (folder_ / name).string();
  }
  Splits open(const std::string& name) const {
    return open_splits(name, {.data_dir = folder_.path().string(), .cache_dir = "off"});
  }
  test::TempDir folder_;
};

TEST_F(Npz, StoredAndDeflatedArraysHaveTheirElements) {
  const std::vector<float> many = counted(600'000);  // more than one piece of reading
  const std::vector<std::int64_t> few = {3, 1, 2};
  for (const bool deflate : {false, true}) {
    for (const bool long_sizes : {false, true}) {
      Zip zip;
      zip.deflate = deflate;
      zip.long_sizes = long_sizes;
      zip.add("many.npy", npy_bytes("<f4", "(600000,)", many)).add("few.npy", npy_bytes("<i8", "(3,)", few));
      const NpzFile file(write("a.npz", zip.whole("PK\5\6 a comment")));
      EXPECT_THAT(file.names(), ElementsAre("many", "few"));
      const NpyArray array = file.array("many"), other = file.array("few");
      EXPECT_EQ(array.header.shape, (Dims{600'000}));
      EXPECT_EQ(array.elements.in_memory(), deflate) << "stored arrays are read from the file";
      std::vector<float> read;
      array.elements.for_each_piece([&](std::size_t, std::span<const std::uint8_t> bytes) {
        const auto* const values = reinterpret_cast<const float*>(bytes.data());
        read.insert(read.end(), values, values + bytes.size() / sizeof(float));
      });
      EXPECT_EQ(read, many);
      EXPECT_EQ(other.header.type, NpyType::i8);
      EXPECT_EQ(other.row(2).as<std::int64_t>()[0], 2);
    }
  }
}

TEST_F(Npz, ADataSetHasItsArraysAsFields) {
  const auto archive = [](std::size_t count) {
    const std::string rows = std::to_string(count);
    std::vector<std::uint8_t> pixels(count * 6);
    std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
    std::vector<std::int64_t> labels(count);
    for (std::size_t i = 0; i < count; ++i) labels[i] = static_cast<std::int64_t>(i % 3);
    Zip zip;
    zip.deflate = true;
    return zip.add("image.npy", npy_bytes("|u1", "(" + rows + ", 2, 3)", pixels))
        .add("label.npy", npy_bytes("<i8", "(" + rows + ", 1)", labels))
        .whole();
  };
  write("train.npz", archive(20));
  write("test.npz", archive(4));
  for (const std::string name :
       {"npy:train.npz,test=test.npz",
        "npy:image=train.npz,label=train.npz:label,test.image=test.npz:image,test.label=test.npz"}) {
    const Splits splits = open(name);
    EXPECT_EQ(describe(splits.train->fields()), "image float32 [1, 2, 3], label int64 []") << name;
    EXPECT_EQ(splits.train->fields()[1].values, 3);
    EXPECT_EQ(splits.train->size(), 20);
    EXPECT_EQ(splits.test->size(), 4);
    EXPECT_TRUE(splits.test->has_bytes(0));
    const test::Sample sample(*splits.test, 1);
    EXPECT_EQ(sample.values<float>("image"),
              (std::vector<float>{6 / 255.F, 7 / 255.F, 8 / 255.F, 9 / 255.F, 10 / 255.F, 11 / 255.F}));
    EXPECT_EQ(sample.label(), 1);
  }
  EXPECT_EQ(open("npy:train.npz,split=0.5,stratify=yes").train->size(), 10);
  // An array that has no name of its own is the field's.
  Zip one;
  write("one.npz", one.add("arr_0.npy", npy_bytes("<f4", "(4,)", counted(4))).whole());
  EXPECT_EQ(describe(open("npy:x=one.npz,split=0.5").train->fields()), "x float32 []");
  EXPECT_THAT(test::message_of([&] { open("npy:x=train.npz,split=0.5"); }),
              AllOf(HasSubstr("train.npz"), HasSubstr("an array x"), HasSubstr("image, label")));
  EXPECT_THAT(test::message_of([&] { open("npy:image=train.npz:label,label=train.npz:none,split=0.5"); }),
              HasSubstr("an array none"));
  // What is wrong with an array is said with its name, the offset being one in it.
  Zip infinite;
  write("infinite.npz",
        infinite.add("x.npy", npy_bytes("<f4", "(2,)", std::vector<float>{1, INFINITY})).whole());
  EXPECT_THAT(test::message_of([&] { open("npy:infinite.npz,split=0.5"); }),
              AllOf(HasSubstr("infinite.npz:x: at byte 132"), HasSubstr("a finite number")));
}

TEST_F(Npz, IdxFilesOfAnyNameAreFieldsByName) {
  write("pictures", test::idx_bytes({6, 2, 3}));
  write("classes.gz", test::gzip(test::idx_bytes({6}, 4)));
  write("colours", test::idx_bytes({6, 3, 2, 2}));
  const Splits splits = open("idx:image=pictures,label=classes.gz,split=0.5");
  EXPECT_EQ(describe(splits.train->fields()), "image float32 [1, 2, 3], label int64 []");
  EXPECT_EQ(splits.train->fields()[1].values, 4);
  const test::Sample sample(*splits.train, 1);
  const auto place = static_cast<float>(splits.train->place_of(1));
  EXPECT_EQ(sample.values<float>("image")[1], (place * 6 + 1) / 255);
  EXPECT_EQ(sample.label(), splits.train->place_of(1) % 4);
  EXPECT_EQ(describe(open("idx:image=colours,test.image=colours").train->fields()),
            "image float32 [3, 2, 2]");
  write("short", test::idx_bytes({6}).substr(0, 9));
  write("flat", test::idx_header({}));
  write("floats", test::idx_header({6}, 0x0d));
  for (const auto& [name, part] :
       {std::pair{"short", "6 elements"}, {"flat", "from 1 to 4 dimensions"}, {"floats", "unsigned byte"}}) {
    EXPECT_THAT(test::message_of([&, file = name] { open(std::string("idx:label=") + file + ",split=0.5"); }),
                AllOf(HasSubstr(name), HasSubstr(part)));
  }
  EXPECT_THAT(test::message_of([&] { open("idx:label=classes.gz,classes=2,split=0.5"); }),
              AllOf(HasSubstr("classes.gz"), HasSubstr("a class from 0 to 1")));
}

TEST_F(Npz, WhatIsDamagedIsRefusedByOffset) {
  const std::string array = npy_bytes("<f4", "(300,)", counted(300));
  const auto made = [&](bool deflate, int flags = 0, int method = -1) {
    Zip zip;
    zip.deflate = deflate;
    zip.flags = flags;
    zip.method = method;
    return zip.add("x.npy", array);
  };
  const std::string stored = made(false).whole(), deflated = made(true).whole();
  const auto with = [](std::string bytes, std::size_t at, const std::string& other) {
    return bytes.replace(at, other.size(), other);
  };
  const std::size_t directory = made(false).bytes.size(), content = 30 + 5 + 20;
  const std::size_t packed = made(true).bytes.size();
  const struct {
    std::string bytes;
    std::int64_t offset;
    const char *expected, *found;
  } cases[] = {
      {"", 0, "directory of a zip archive", "the end of the file"},
      {array, static_cast<std::int64_t>(array.size()), "directory of a zip archive", "the end of the file"},
      {stored.substr(0, stored.size() - 1), static_cast<std::int64_t>(stored.size()) - 1,
       "directory of a zip", "end"},
      {stored.substr(100), static_cast<std::int64_t>(stored.size()) - 122, "a directory within",
       "from 1383 on"},
      {with(stored, directory, "PK\1\1"), 1383, "member 1 of 1", "something else"},
      {with(stored, stored.size() - 14, little(2, 2) + little(2, 2)), 1437, "member 2 of 2", "end"},
      {with(stored, directory + 28, little(500, 2)), 1383, "a whole entry", "end"},
      {with(stored, directory + 24, little(7, 4)), 1403, "7 stored bytes of x.npy", "1328"},
      {with(stored, directory + 42, little(1380, 4)), 1380, "the header of x.npy", "the directory"},
      {with(stored, directory + 42, little(4, 4)), 4, "the header of x.npy", "something else"},
      {with(stored, 30, "y"), 30, "the name x.npy", "another"},
      {with(stored, 28, little(60, 2)), 0, "1328 bytes of x.npy before the directory", "a beginning at 95"},
      {with(stored, content + 400, "?"), 55, "content of x.npy with the checksum", "damaged"},
      {made(false, 1).whole(), 1391, "x.npy without encryption", "encrypted"},
      {made(false, 0, 14).whole(), 1393, "stored or deflated", "method 14"},
      {with(deflated, content, "\xff\xff\xff"), 0, "intact deflated data of x.npy", "invalid"},
      {with(deflated, packed + 24, little(1327, 4)), 0, "1327 bytes of x.npy", "more"},
      {with(deflated, packed + 24, little(1329, 4)), static_cast<std::int64_t>(packed) - 55,
       "1329 bytes of x.npy", "the end of its data after 1328"},
      {with(deflated, packed + 24, little(UINT32_MAX - 1, 4)), 0, "times as many as are stored",
       "4294967294"},
      {with(deflated, packed + 16, little(1, 4)), 55, "checksum 00000001", "damaged"},
      {with(deflated, packed + 24, little(UINT32_MAX, 4)), static_cast<std::int64_t>(packed), "64-bit sizes",
       "none"},
      {made(false).add("notes.txt", "text").whole(), 1383, "arrays alone", "notes.txt"},
  };
  for (const auto& [bytes, offset, expected, found] : cases) {
    const std::string path = write("bad.npz", bytes);
    const DataError error = data_error_of([&] { NpzFile(path).array("x"); });
    EXPECT_EQ(error.offset_bytes(), offset) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("bad.npz: at byte"), HasSubstr(expected), HasSubstr(found)));
  }
  // Cut anywhere, it is refused, whatever is left.
  for (std::size_t size = 0; size < deflated.size(); ++size) {
    const std::string path = write("bad.npz", deflated.substr(0, size));
    EXPECT_THROW(NpzFile(path).array("x"), DataError) << size;
  }
}

}  // namespace
}  // namespace dtrain
