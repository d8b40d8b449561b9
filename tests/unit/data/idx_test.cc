// Every way an IDX file can be wrong must be refused with the place named; right ones read byte for byte.
#include "runtime/data/formats/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"

namespace dtrain {
namespace {

using test::data_error_of;
using test::gzip;
using test::idx_bytes;
using test::idx_header;
using test::text_of;
using ::testing::HasSubstr;

class IdxTest : public ::testing::Test {
 protected:
  IdxArray read(const std::string& bytes, const Dims& item) {
    const auto path = folder_ / "file";
    test::write_file(path, bytes);
    return read_idx(path.string(), {item, "the test's file"}, no_cache_);
  }
  DataError refusal(const std::string& bytes, const Dims& item) {
    return data_error_of([&] { read(bytes, item); });
  }

  test::TempDir folder_;
  NullLog log_;
  DataCache no_cache_{{}, log_};
};

TEST_F(IdxTest, ReadsPlainAndGzipAlike) {
  const std::string bytes = idx_bytes({5, 4, 3});
  for (const std::string& stored : {bytes, gzip(bytes), gzip(bytes, 0)}) {
    const IdxArray array = read(stored, {4, 3});
    EXPECT_EQ(array.dims, (Dims{5, 4, 3}));
    EXPECT_EQ(text_of(array.elements), bytes.substr(16));
    EXPECT_EQ(array.header_bytes, 16U);
  }
}

TEST_F(IdxTest, JoinsGzipMembers) {
  const std::string bytes = idx_bytes({600, 4});
  const IdxArray array = read(gzip(bytes.substr(0, 700)) + gzip("") + gzip(bytes.substr(700)), {4});
  EXPECT_EQ(text_of(array.elements), bytes.substr(12));
}

// 3 MiB: more than one buffer, one chunk and one growth step of the reader.
TEST_F(IdxTest, ReadsContentLargerThanItsBuffers) {
  const std::string bytes = idx_bytes({3, 1 << 20});
  const IdxArray array = read(gzip(bytes, 0), {1 << 20});
  EXPECT_EQ(text_of(array.elements), bytes.substr(12));
}

TEST_F(IdxTest, RefusesPlainFileCutAnywhere) {
  const std::string bytes = idx_bytes({5, 4, 3});
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    const DataError error = refusal(bytes.substr(0, cut), {4, 3});
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "file").string())) << cut;
    if (cut < 16) {
      EXPECT_EQ(error.offset_bytes(), static_cast<std::int64_t>(cut)) << error.what();
    } else {
      EXPECT_THAT(error.what(), HasSubstr("60 elements")) << cut;
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(cut - 16) + " bytes")) << cut;
    }
  }
}

TEST_F(IdxTest, RefusesGzipFileCutAnywhere) {
  const std::string bytes = gzip(idx_bytes({5, 4, 3}));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_THROW(read(bytes.substr(0, cut), {4, 3}), DataError) << cut;
}

// A cut that gzip does not notice: the stream is whole, what it holds is not.
TEST_F(IdxTest, RefusesCutContentInWholeGzip) {
  const std::string bytes = idx_bytes({5, 4, 3});
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    const DataError error = refusal(gzip(bytes.substr(0, cut)), {4, 3});
    EXPECT_EQ(error.offset_bytes(), static_cast<std::int64_t>(cut)) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("decompressed")) << cut;
  }
}

// Bytes 4 to 9 of a gzip header (time, hints, system) carry no data, nor do the bits that fill the last byte
// of its deflate stream: where a flip is accepted, nothing of the content may have changed.
TEST_F(IdxTest, FlippedBitsOfGzipNeverChangeContent) {
  const std::string content = idx_bytes({5, 4, 3});
  const std::string bytes = gzip(content);
  int refused = 0;
  for (std::size_t at = 10; at < bytes.size(); ++at) {
    for (const unsigned bit : {at % 8, (at + 5) % 8}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        const IdxArray array = read(flipped, {4, 3});
        EXPECT_EQ(text_of(array.elements), content.substr(16)) << at << " " << bit;
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_GE(refused, 2 * static_cast<int>(bytes.size() - 10) - 8);
}

TEST_F(IdxTest, NamesGzipChecksumAndWhereItIs) {
  std::string bytes = gzip(idx_bytes({5, 4, 3}));
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);
  const DataError error = refusal(bytes, {4, 3});
  EXPECT_THAT(error.what(), HasSubstr("incorrect data check"));
  EXPECT_GE(error.offset_bytes(), static_cast<std::int64_t>(bytes.size()) - 8);
}

TEST_F(IdxTest, RefusesTrailingBytes) {
  const std::string bytes = idx_bytes({5, 4, 3});
  for (const std::string& longer : {bytes + "x", gzip(bytes + "x"), gzip(bytes) + gzip("x")}) {
    EXPECT_EQ(refusal(longer, {4, 3}).offset_bytes(), static_cast<std::int64_t>(bytes.size()));
  }
  for (const std::string& tail :
       {std::string("x"), std::string(9, '\0'), std::string("\x1f"), std::string("\x1f\x8b")}) {
    EXPECT_THROW(read(gzip(bytes) + tail, {4, 3}), DataError) << tail.size();
  }
  EXPECT_EQ(refusal(gzip(bytes) + "xyz", {4, 3}).offset_bytes(),
            static_cast<std::int64_t>(gzip(bytes).size()));
}

TEST_F(IdxTest, RefusesWrongHeaders) {
  std::string bad_magic = idx_bytes({4});
  bad_magic[1] = 1;
  EXPECT_EQ(refusal(bad_magic, {}).offset_bytes(), 0);
  EXPECT_EQ(refusal(idx_header({4}, 0x0d) + std::string(16, '\0'), {}).offset_bytes(), 2);  // float32
  EXPECT_EQ(refusal(idx_bytes({4, 3}), {}).offset_bytes(), 3);                              // wrong rank
  EXPECT_EQ(refusal(idx_bytes({4}), {3}).offset_bytes(), 3);
  EXPECT_EQ(refusal(idx_bytes({5, 4, 2}), {4, 3}).offset_bytes(), 12);  // wrong item
  EXPECT_EQ(refusal(idx_bytes({0, 4}), {4}).offset_bytes(), 4);         // no items
}

TEST_F(IdxTest, RefusesProductThatOverflows) {
  const DataError error =
      refusal(idx_header({0xffffffff, 0xffffffff, 0xffffffff}) + "data", {0xffffffff, 0xffffffff});
  EXPECT_THAT(error.what(), HasSubstr("fits in 64 bits"));
  // 2^63 fits in 64 bits, with the header's size it must still be refused.
  EXPECT_THROW(read(idx_header({1U << 31, 1U << 31, 2}) + "data", {std::int64_t{1} << 31, 2}), DataError);
  EXPECT_THROW(read(gzip(idx_header({1U << 31, 1U << 31, 2}) + "data"), {std::int64_t{1} << 31, 2}),
               DataError);
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST_F(IdxTest, LyingHeaderTakesNoMemory) {
  // More than deflate can make of the file: refused by the header alone.
  EXPECT_THAT(refusal(gzip(idx_header({4000, 1 << 20}) + "data"), {1 << 20}).what(), HasSubstr("can hold"));
  // Just possible, by the file's length: only what really comes out is ever allocated.
  const std::string noise = gzip(idx_bytes({1, 2 << 20}), 0);
  const std::string lie = gzip(idx_header({1000, 2 << 20}), 0) + noise;
  const long before = peak_kib();
  EXPECT_THAT(refusal(lie, {2 << 20}).what(), HasSubstr("the end of the content"));
  EXPECT_LT(peak_kib() - before, 64 << 10);
}

TEST_F(IdxTest, NamesWhatIsNotAFile) {
  const auto missing = data_error_of([&] {
    read_idx((folder_ / "nothing").string(), {{}, "the labels"}, no_cache_);
  });
  EXPECT_THAT(missing.what(), HasSubstr("expected the labels, found No such file"));
  const auto folder = data_error_of([&] {
    read_idx(folder_.path().string(), {{}, "the labels"}, no_cache_);
  });
  EXPECT_THAT(folder.what(), HasSubstr("a directory"));
}

}  // namespace
}  // namespace dtrain
