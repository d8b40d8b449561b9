// NumPy's files: every version and type that is read, and refusals that name file, offset, expected and
// found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/data/sources/npy_source.h"
#include "tests/fuzz/targets_data.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain {
namespace {

using test::data_error_of;
using test::npy_bytes;
using test::npy_header;
using ::testing::AllOf;
using ::testing::HasSubstr;

NpyHeader parse(std::string_view bytes) {
  return parse_npy_header({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "a.npy");
}

TEST(Npy, HeadersOfAllVersionsAndTypes) {
  const std::pair<const char*, NpyType> types[] = {
      {"<f4", NpyType::f4}, {"<f8", NpyType::f8}, {"<i4", NpyType::i4},
      {"<i8", NpyType::i8}, {"|u1", NpyType::u1}, {"|b1", NpyType::b1},
      {"<f2", NpyType::f2}, {"<i2", NpyType::i2}, {"|i1", NpyType::i1}};
  for (const int version : {1, 2, 3}) {
    for (const auto& [descr, type] : types) {
      for (const auto& [text, shape] : {std::pair<const char*, Dims>{"()", {}},
                                        {"(7,)", {7}},
                                        {"(7, 3)", {7, 3}},
                                        {"(2, 0, 4)", {2, 0, 4}},
                                        {"(5L, 6L)", {5, 6}}}) {
        const std::string bytes = npy_header(descr, text, version);
        const NpyHeader header = parse(bytes);
        EXPECT_EQ(header.type, type);
        EXPECT_EQ(header.shape, shape);
        EXPECT_EQ(header.bytes, bytes.size());
        EXPECT_EQ(header.total, bytes.size() + static_cast<std::size_t>(shape.product()) * size_of(type));
      }
    }
  }
}

TEST(Npy, KeysMayComeInAnyOrderAndSpacing) {
  const std::string text = "{ \"shape\":(3 , ) ,\"fortran_order\" : False,\t\"descr\": \"<i8\" }  \n";
  const NpyHeader header = parse(test::npy_frame(text, 1));
  EXPECT_EQ(header.shape, (Dims{3}));
  EXPECT_EQ(header.type, NpyType::i8);
}

TEST(Npy, WrongHeadersAreRefusedByOffset) {
  const auto text = [](const std::string& dictionary) { return test::npy_frame(dictionary, 1); };
  const std::string good = npy_header("<f4", "(2,)", 1);
  const struct {
    std::string bytes;
    std::int64_t offset;
    const char *expected, *found;
  } cases[] = {
      {"PK\x03\x04 an archive", 0, "NUMPY", "something else"},
      {"", 0, "magic number", "the end of the file"},
      {good.substr(0, 4), 4, "magic number and version", "the end of the file"},
      {std::string("\x93NUMPY\x04\x00", 8), 6, "version 1.0, 2.0 or 3.0", "4.0"},
      {std::string("\x93NUMPY\x01\x02", 8), 6, "version 1.0, 2.0 or 3.0", "1.2"},
      {good.substr(0, 9), 9, "length of the header", "the end of the file"},
      {good.substr(0, 40), 8, "a header of at most the 30 bytes", "118"},
      {text("[1]"), 10, "'{'", "[1]"},
      {text("{}"), 12, "the keys descr, fortran_order and shape", "the header's end"},
      {text("{'descr': '<f4', 'fortran_order': False}"), 50, "the keys", "end"},
      {text("{'descr': '<f4', 'descr': '<f4'}"), 27, "once", "'descr'"},
      {text("{'descr': '<f4', 'order': 1}"), 27, "once", "'order'"},
      {text("{'descr': '<c8'}"), 20, "<f4, <f8, <f2, <i4, <i8, <i2, |i1, |u1 or |b1", "'<c8'"},
      {text("{'descr': '>f4'}"), 20, "little-endian", "'>f4'"},
      {text("{'descr': [('a', '<f4')]}"), 20, "structured", "[('a'"},
      {text("{'descr': <f4}"), 20, "a string in quotes", "<f4}"},
      {text("{'descr': '<f4"), 20, "a string in quotes", "'<f4"},
      {text("{'fortran_order': 0}"), 28, "True or False", "0}"},
      {text("{'shape': 3}"), 20, "'('", "3}"},
      {text("{'shape': (3.5,)}"), 22, "')'", ".5"},
      {text("{'shape': (-1,)}"), 21, "a whole number", "-1"},
      {text("{'shape': (1,1,1,1,1,1,1,1,1)}"), 37, "at most 8 dimensions", "1)"},
      {text("{'shape': (99999999999999999999,)}"), 21, "memory can hold", "9999"},
      {text("{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000, 4000000000)}"), 10,
       "memory can hold", "[4000000000, 4000000000]"},
      {text("{'descr': '<f8', 'fortran_order': False, 'shape': (4,)} x"), 66, "the end of the header", "x"},
  };
  for (const auto& [bytes, offset, expected, found] : cases) {
    const DataError error = data_error_of([&, content = bytes] { parse(content); });
    EXPECT_EQ(error.offset_bytes(), offset) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("a.npy"), HasSubstr(expected), HasSubstr(found)));
  }
}

class NpyFiles : public ::testing::Test {
 protected:
  NpyField write(const std::string& name, const std::string& bytes) {
    test::write_file(path(name), bytes);
    return open_npy_field(name, path(name));
  }
  std::string path(const std::string& name) const { return (folder_ / (name + ".npy")).string(); }
  DataError refusal(const std::string& bytes) {
    return data_error_of([&] { write("a", bytes); });
  }

  test::TempDir folder_;
};

TEST_F(NpyFiles, RowsAreSamples) {
  const NpySource source("arrays", {write("x", npy_bytes<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6})),
                                    write("y", npy_bytes<double>("<f8", "(3,)", {0.1, -2.5, 1e-60})),
                                    write("tokens", npy_bytes<std::int32_t>("<i4", "(3, 1)", {7, -8, 9})),
                                    write("id", npy_bytes<std::int64_t>("<i8", "(3,)", {1LL << 40, 2, 3})),
                                    write("seen", npy_bytes<std::uint8_t>("|b1", "(3,)", {1, 0, 1})),
                                    write("label", npy_bytes<std::uint8_t>("|u1", "(3,)", {4, 0, 2}))});
  EXPECT_EQ(source.size(), 3);
  EXPECT_EQ(describe(source.fields()),
            "x float32 [2], y float32 [], tokens int32 [1], id int64 [], seen uint8 [], label int64 []");
  EXPECT_EQ(source.fields()[5].values, 5);
  const test::Sample first(source, 0), second(source, 1), third(source, 2);
  EXPECT_EQ(second.values<float>("x"), (std::vector<float>{3, 4}));
  EXPECT_EQ(first.values<float>("y"), std::vector<float>{0.1F});
  EXPECT_EQ(third.values<float>("y"), std::vector<float>{0});
  EXPECT_EQ(second.values<std::int32_t>("tokens"), std::vector<std::int32_t>{-8});
  EXPECT_EQ(first.values<std::int64_t>("id"), std::vector<std::int64_t>{1LL << 40});
  EXPECT_EQ(second.values<std::uint8_t>("seen"), std::vector<std::uint8_t>{0});
  EXPECT_EQ(first.label(), 4);
  EXPECT_EQ(third.label(), 2);
}

TEST_F(NpyFiles, TokensAreBelowTheVocabulary) {
  const NpySource source("arrays", {write("tokens", npy_bytes<std::int32_t>("<i4", "(2, 2)", {7, 8, 9, 0}))},
                         {.vocabulary = 9});
  EXPECT_EQ(source.fields()[0].values, 9);
  EXPECT_EQ(test::Sample(source, 0).values<std::int32_t>("tokens"), (std::vector<std::int32_t>{7, 8}));
  EXPECT_THAT(test::message_of([&] { test::Sample(source, 1); }),
              AllOf(HasSubstr("sample 1"), HasSubstr("from 0 to 8, got 9")));
}

TEST_F(NpyFiles, SmallNumbersAreWidened) {
  const std::vector<Float16> halves = {Float16(1.5F), Float16(-2), Float16(65504), Float16(0x1p-24F)};
  const NpySource source("arrays", {write("x", npy_bytes<Float16>("<f2", "(2, 2)", halves)),
                                    write("id", npy_bytes<std::int16_t>("<i2", "(2,)", {-300, 32767})),
                                    write("t", npy_bytes<std::int8_t>("|i1", "(2, 2)", {-128, 127, 0, 1})),
                                    write("label", npy_bytes<std::int16_t>("<i2", "(2,)", {1, 0}))});
  EXPECT_EQ(describe(source.fields()), "x float32 [2], id int32 [], t int32 [2], label int64 []");
  EXPECT_EQ(source.fields()[3].values, 2);
  const test::Sample first(source, 0), second(source, 1);
  EXPECT_EQ(first.values<float>("x"), (std::vector<float>{1.5F, -2}));
  EXPECT_EQ(second.values<float>("x"), (std::vector<float>{65504, 0x1p-24F}));
  EXPECT_EQ(first.values<std::int32_t>("id"), std::vector<std::int32_t>{-300});
  EXPECT_EQ(first.values<std::int32_t>("t"), (std::vector<std::int32_t>{-128, 127}));
  EXPECT_EQ(first.label(), 1);
  const NpyField bad = write("x", npy_bytes<Float16>("<f2", "(2,)", {Float16(1), Float16(1e9F)}));
  EXPECT_THAT(data_error_of([&] { NpySource("s", {bad}); }).what(), HasSubstr("inf (sample 1)"));
}

TEST_F(NpyFiles, ColumnsThatComeFirstAreBroughtInOrder) {
  // numpy.asfortranarray(numpy.arange(24).reshape(2, 3, 4)) and its transpose
  std::vector<float> columns;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) columns.push_back(static_cast<float>(i * 12 + j * 4 + k));
  const auto file = [](const std::string& shape, const std::string& elements) {
    return test::npy_frame("{'descr': '<f4', 'fortran_order': True, 'shape': " + shape + ", }", 1) + elements;
  };
  const std::string bytes(reinterpret_cast<const char*>(columns.data()), columns.size() * sizeof(float));
  const NpySource cube("s", {write("x", file("(2, 3, 4)", bytes))});
  std::vector<float> expected(12);
  std::iota(expected.begin(), expected.end(), 12.0F);
  EXPECT_EQ(test::Sample(cube, 1).values<float>("x"), expected);
  const NpySource line("s", {write("x", file("(24,)", bytes))});
  EXPECT_EQ(test::Sample(line, 5).values<float>("x"), std::vector<float>{columns[5]});
  columns[3] = std::numeric_limits<float>::infinity();  // i, j, k = 1, 1, 0
  const std::string wrong(reinterpret_cast<const char*>(columns.data()), columns.size() * sizeof(float));
  const NpyField bad = write("x", file("(2, 3, 4)", wrong));
  const DataError error = data_error_of([&] { NpySource("s", {bad}); });
  EXPECT_THAT(error.what(), HasSubstr("inf (sample 1)"));
  EXPECT_EQ(error.offset_bytes(), -1) << "no byte is named, rather than a wrong one";
  EXPECT_THAT(refusal(file("(2, 3, 4)", bytes + "x")).what(), HasSubstr("shape [2, 3, 4]"));
}

TEST_F(NpyFiles, ImagesAreReadAsPixels) {
  std::vector<std::uint8_t> pixels(2 * 3 * 2 * 2);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 10);
  const NpySource source("images", {write("image", npy_bytes<std::uint8_t>("|u1", "(2, 3, 2, 2)", pixels))});
  EXPECT_EQ(describe(source.fields()), "image float32 [3, 2, 2]");
  const auto planes = test::image(source, 1);
  const auto by_pixel = test::Sample(source, 1, {"image"}).values<float>("image");
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(planes[i], static_cast<float>((12 + i) * 10) / 255.0F);
    EXPECT_EQ(by_pixel[i % 4 * 3 + i / 4], planes[i]);
  }
  EXPECT_EQ(test::difference_of_bytes(source, 1), "");
}

TEST_F(NpyFiles, FloatImagesMayLieChannelsLastToo) {
  std::vector<float> values(2 * 3 * 2 * 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const NpySource source("images", {write("image", npy_bytes<float>("<f4", "(2, 3, 2, 2)", values))});
  const auto by_pixel = test::Sample(source, 1, {"image"}).values<float>("image");
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(by_pixel[i % 4 * 3 + i / 4], static_cast<float>(12 + i));
  EXPECT_EQ(test::difference_of_bytes(source, 1), "the image is not carried as bytes");
}

TEST_F(NpyFiles, ElementsNeedNotBeAligned) {
  const std::string odd = test::npy_frame("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", 1);
  ASSERT_NE(odd.size() % 8, 0U);
  const double values[] = {1.5, 2.5};
  const NpySource source("odd", {write("y", odd + std::string(reinterpret_cast<const char*>(values), 16))});
  EXPECT_EQ(test::Sample(source, 1).values<float>("y"), std::vector<float>{2.5F});
}

TEST_F(NpyFiles, FilesMustBeWhole) {
  const std::string good = npy_bytes<float>("<f4", "(3,)", {1, 2, 3});
  const auto size = static_cast<std::int64_t>(good.size());
  const DataError cut = refusal(good.substr(0, good.size() - 1));
  EXPECT_EQ(cut.offset_bytes(), size - 1);
  EXPECT_THAT(cut.what(),
              AllOf(HasSubstr("a.npy"), HasSubstr("shape [3]"), HasSubstr(std::to_string(size - 1))));
  EXPECT_EQ(refusal(good + "x").offset_bytes(), size);
  EXPECT_THAT(refusal("").what(), HasSubstr("an empty file"));
  EXPECT_THAT(refusal(test::gzip(good)).what(), HasSubstr("unpack it"));
  EXPECT_THAT(refusal(npy_bytes<float>("<f4", "()", {1})).what(), HasSubstr("[N, ...]"));
  EXPECT_THAT(refusal(npy_header("<f4", "(0, 3)", 1)).what(), HasSubstr("at least one"));
  EXPECT_THAT(data_error_of([&] { open_npy_field("x", path("none")); }).what(), HasSubstr("No such file"));
}

TEST_F(NpyFiles, LabelsMayBeColumnsOrWholeFloats) {
  const NpySource column("s", {write("label", npy_bytes<std::int32_t>("<i4", "(3, 1)", {2, 0, 1}))});
  EXPECT_EQ(describe(column.fields()), "label int64 []");
  EXPECT_EQ(column.fields()[0].values, 3);
  EXPECT_EQ(test::Sample(column, 0).label(), 2);
  const NpySource floats("s", {write("label", npy_bytes<double>("<f8", "(3,)", {2, 0, 1}))});
  EXPECT_EQ(describe(floats.fields()), "label int64 []");
  EXPECT_EQ(test::Sample(floats, 2).label(), 1);
  const NpySource shares("s", {write("label", npy_bytes<double>("<f8", "(2,)", {0.5, 1}))});
  EXPECT_EQ(describe(shares.fields()), "label float32 []");
}

TEST_F(NpyFiles, NumbersThatAreNotFiniteAreNamedBySample) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const auto refused = [&](const std::string& bytes) {
    const NpyField file = write("x", bytes);
    return data_error_of([&] { NpySource("s", {file}); });
  };
  const DataError first = refused(npy_bytes<float>("<f4", "(3, 2)", {1, 2, 3, nan, 5, 6}));
  EXPECT_THAT(first.what(),
              AllOf(HasSubstr("x.npy"), HasSubstr("a finite number"), HasSubstr("nan (sample 1)")));
  EXPECT_EQ(first.offset_bytes(), static_cast<std::int64_t>(test::read_file(path("x")).size()) - 3 * 4);
  EXPECT_THAT(refused(npy_bytes<float>("<f4", "(2,)", {1, -inf})).what(), HasSubstr("-inf (sample 1)"));
  EXPECT_THAT(refused(npy_bytes<double>("<f8", "(2,)", {1e39, 1})).what(), HasSubstr("1e+39 (sample 0)"));
}

TEST_F(NpyFiles, AFileThatIsShortenedIsNamed) {
  const NpySource source("s", {write("x", npy_bytes<float>("<f4", "(4000, 2)", std::vector<float>(8000)))});
  std::filesystem::resize_file(path("x"), 100);
  const DataError error = data_error_of([&] { test::Sample(source, 3999); });
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("x.npy"), HasSubstr("truncated or rewritten"), HasSubstr("found 100")));
}

// Between any two looks at its length: a file that is mapped would be a SIGBUS.
TEST_F(NpyFiles, AFileThatIsShortenedWhileItIsCopiedIsNamed) {
  constexpr int kRow = 1 << 18;
  const NpySource source(
      "s",
      {write("x", npy_bytes<float>("<f4", fmt::format("(2, {})", kRow), std::vector<float>(2 * kRow, 1)))});
  const auto whole = std::filesystem::file_size(path("x"));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) {
      std::filesystem::resize_file(path("x"), 100);
      std::filesystem::resize_file(path("x"), whole);
    }
  });
  int read = 0, refused = 0;
  for (int i = 0; (i < 200 || refused < 10) && i < 20000; ++i) {
    try {
      test::Sample(source, 1);
      ++read;
    } catch (const DataError& error) {
      ASSERT_THAT(error.what(), HasSubstr("truncated or rewritten"));
      ++refused;
    }
  }
  stop = true;
  writer.join();
  EXPECT_GE(refused, 10) << read << " were read";
}

TEST_F(NpyFiles, LabelsAndCountsMustFit) {
  const auto two = write("x", npy_bytes<float>("<f4", "(2,)", {1, 2}));
  const auto labels = write("label", npy_bytes<std::int64_t>("<i8", "(3,)", {0, 9, 1}));
  EXPECT_THAT(
      data_error_of([&] {
        NpySource("s", {two, labels});
      }).what(),
      AllOf(HasSubstr("label.npy"), HasSubstr("2 samples, as in"), HasSubstr("x.npy"), HasSubstr("[3]")));
  EXPECT_EQ(NpySource("s", {labels}).fields()[0].values, 10);
  EXPECT_EQ(NpySource("s", {labels}, {.classes = 20}).fields()[0].values, 20);
  const DataError high = data_error_of([&] { NpySource("s", {labels}, {.classes = 9}); });
  EXPECT_EQ(high.offset_bytes(), static_cast<std::int64_t>(labels.array.header.bytes) + 8);
  EXPECT_THAT(high.what(), AllOf(HasSubstr("a class from 0 to 8"), HasSubstr("9 (label 1)")));
  const auto negative = write("label", npy_bytes<std::int32_t>("<i4", "(2,)", {0, -1}));
  EXPECT_THAT(data_error_of([&] { NpySource("s", {negative}); }).what(), HasSubstr("-1 (label 1)"));
  EXPECT_THROW(NpySource("s", {}), UsageError);
  EXPECT_THROW(NpySource("s", {two, two}), UsageError);
}

TEST(NpyFuzz, AFewThousandInputsBreakNoPromise) {
  const std::string good = npy_header("<f4", "(12, 3)", 1);
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    KeyedGenerator generator(seed, 0, 0);
    std::string input = good;
    for (std::uint64_t left = generator.below(5); left > 0; --left)
      input[generator.below(input.size())] = static_cast<char>(generator.below(256));
    input.resize(generator.below(8) == 0 ? generator.below(input.size()) : input.size());
    fuzz::npy(input);
  }
}

}  // namespace
}  // namespace dtrain
