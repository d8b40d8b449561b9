// CSV as RFC 4180 has it, tables of numbers made of it, and refusals that name file, row and column.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/formats/csv_reader.h"
#include "runtime/data/sources/csv_source.h"
#include "tests/fuzz/targets_data.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"

namespace dtrain {
namespace {

using test::data_error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Records = std::vector<std::vector<std::string>>;

/// All records of `text`, read `step` bytes at a time.
Records records_of(std::string_view text, std::size_t step = CsvReader::kBufferBytes, char delimiter = ',') {
  const auto read = [at = std::size_t{0}, text](std::span<std::uint8_t> out) mutable {
    const std::size_t count = std::min(out.size(), text.size() - at);
    std::memcpy(out.data(), text.data() + at, count);
    at += count;
    return count;
  };
  CsvReader reader("text", read, delimiter, step);
  Records records;
  for (CsvRecord record; reader.next(record);) {
    records.emplace_back();
    for (std::size_t i = 0; i < record.size(); ++i) records.back().emplace_back(record[i]);
  }
  return records;
}

TEST(CsvReader, ReadsWhatRfc4180Has) {
  const std::pair<std::string_view, Records> cases[] = {
      {"", {}},
      {"a", {{"a"}}},
      {"a,b\n1,2\n", {{"a", "b"}, {"1", "2"}}},
      {"a,b\r\n1,2", {{"a", "b"}, {"1", "2"}}},
      {"a,,\n,,b\n", {{"a", "", ""}, {"", "", "b"}}},
      {",\n", {{"", ""}}},
      {"\"a,b\",\"c\"\"d\"\n", {{"a,b", "c\"d"}}},
      {"\"one\ntwo\r\nthree\",x\n", {{"one\ntwo\r\nthree", "x"}}},
      {"\"\"\n\"\",\"\"", {{""}, {"", ""}}},
      {"a\n\n\r\nb\n\n", {{"a"}, {"b"}}},
      {"\xef\xbb\xbf"
       "a,b\n",
       {{"a", "b"}}},
      {"ä,日本\n", {{"ä", "日本"}}},
  };
  for (const auto& [text, expected] : cases) {
    for (const std::size_t step : {std::size_t{3}, std::size_t{4}, std::size_t{7}, CsvReader::kBufferBytes})
      EXPECT_EQ(records_of(text, step), expected) << text << " by " << step;
  }
  EXPECT_EQ(records_of("a;\"b;c\"\n", 5, ';'), (Records{{"a", "b;c"}}));
  EXPECT_EQ(records_of("a\tb,c\n", 5, '\t'), (Records{{"a", "b,c"}}));
}

TEST(CsvReader, RefusesWhatCannotBeRightByPlace) {
  const struct {
    std::string_view text;
    std::int64_t offset;
    const char *expected, *found;
  } cases[] = {
      {"a,b\n1,2\"3\n", 7, "whole field", "(line 2)"},
      {"\"a\"b\n", 3, "closing quote (line 1)", "'b'"},
      {"a,\"b\nc", 6, "closing quote of the field that begins at byte 2 (line 2)", "the end of the file"},
      {"a\rb", 2, "line feed", "'b'"},
      {"a\r", 2, "line feed", "the end of the file"},
  };
  for (const auto& [text, offset, expected, found] : cases) {
    for (const std::size_t step : {std::size_t{3}, CsvReader::kBufferBytes}) {
      const DataError error = data_error_of([&, bytes = text] { records_of(bytes, step); });
      EXPECT_EQ(error.offset_bytes(), offset) << text;
      EXPECT_THAT(error.what(), AllOf(HasSubstr("text"), HasSubstr(expected), HasSubstr(found)));
    }
  }
}

TEST(CsvReader, ARecordHasABound) {
  EXPECT_THAT(data_error_of([] { records_of("\"" + std::string((16 << 20) + 1, 'x')); }).what(),
              HasSubstr("at most 16777216 bytes"));
}

class CsvTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Source> table(const std::string& text, const CsvColumns& columns,
                                      std::int64_t classes = 0) {
    test::write_file(path(), text);
    const auto read = std::make_shared<const CsvTable>(path(), columns, CsvReading{.classes = classes});
    return CsvTable::source(read, "table", classes > 0 ? classes : read->classes());
  }
  std::string refusal(const std::string& text, const CsvColumns& columns, std::int64_t classes = 0) {
    const DataError error = data_error_of([&] { table(text, columns, classes); });
    EXPECT_EQ(error.path(), path());
    return error.what();
  }
  std::string path() const { return (folder_ / "table.csv").string(); }

  test::TempDir folder_;
};

TEST_F(CsvTableTest, ColumnsBecomeFieldsInTheOrderAskedFor) {
  const std::string text =
      "id,\"price, net\",size,rooms,kind\n"
      "a, 1.5 ,10,-2,0\n"
      "\"b\nb\",+2e3,1e-60,3,2\n"
      "c,\"0.1\",16777217,.5,1\n";
  const auto source = table(text, {{"rooms", "size"}, {"price, net"}, "kind"});
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(describe(source->fields()), "x float32 [2], y float32 [1], label int64 []");
  EXPECT_EQ(source->fields()[2].values, 3);
  const std::vector<float> x[] = {{-2, 10}, {3, 0}, {0.5F, 16777216}};
  const float y[] = {1.5F, 2000, 0.1F};
  const std::int64_t labels[] = {0, 2, 1};
  for (std::int64_t i = 0; i < 3; ++i) {
    const test::Sample sample(*source, i);
    EXPECT_EQ(sample.values<float>("x"), x[i]);
    EXPECT_EQ(sample.values<float>("y"), std::vector<float>{y[i]});
    EXPECT_EQ(sample.label(), labels[i]);
  }
  EXPECT_EQ(read_csv_header(path()), (std::vector<std::string>{"id", "price, net", "size", "rooms", "kind"}));
  EXPECT_EQ(feature_columns(read_csv_header(path()), {{}, {"price, net"}, "kind"}, path()),
            (std::vector<std::string>{"id", "size", "rooms"}));
}

TEST_F(CsvTableTest, GzipIsReadAsItsContent) {
  EXPECT_EQ(test::Sample(*table(test::gzip("a,b\n1,2\n"), {{"a"}, {"b"}, ""}), 0).values<float>("y"),
            std::vector<float>{2});
}

TEST_F(CsvTableTest, NumbersThatAreNoneAreNamedByRowAndColumn) {
  const CsvColumns columns{{"a", "b"}, {}, "c"};
  const struct {
    const char *row, *column, *expected, *found;
  } cases[] = {
      {"one,2,0", "column a", "a number in row 2 (line 3)", "\"one\""},
      {"1,,0", "column b", "a number", "nothing"},
      {"1,2x,0", "column b", "a number", "\"2x\""},
      {"1,0x10,0", "column b", "a number", "\"0x10\""},
      {"1,+-2,0", "column b", "a number", "\"+-2\""},
      {"1,1 2,0", "column b", "a number", "\"1 2\""},
      {"nan,2,0", "column a", "finite", "\"nan\""},
      {"1e39,2,0", "column a", "float32 can hold", "\"1e39\""},
      {"-1e999,2,0", "column a", "float32 can hold", "\"-1e999\""},
      {"1,2,1.5", "column c", "a class from 0 to 4", "\"1.5\""},
      {"1,2,5.0", "column c", "a class from 0 to 4", "\"5.0\""},
      {"1,2,-1", "column c", "a class from 0 to 4", "\"-1\""},
      {"1,2,5", "column c", "a class from 0 to 4", "\"5\""},
  };
  for (const auto& [row, column, expected, found] : cases) {
    EXPECT_THAT(refusal(std::string("a,b,c\n1,2,4\n") + row + "\n", columns, 5),
                AllOf(HasSubstr(column), HasSubstr(expected), HasSubstr(std::string("found ") + found)))
        << row;
  }
  EXPECT_THAT(refusal("a,b,c\n1,2,x\n", columns), HasSubstr("an integer from 0 on"));
  const std::string longer(100, 'z');
  EXPECT_THAT(refusal("a,b,c\n" + longer + ",2,1\n", columns),
              HasSubstr("\"" + longer.substr(0, 40) + "\"…"));
}

TEST_F(CsvTableTest, LinesAreCountedThroughQuotedOnes) {
  const DataError error = data_error_of([&] { table("a,b\n\"1\n\",2\n3,x\n", {{"b"}, {}, ""}); });
  EXPECT_THAT(error.what(), HasSubstr("row 2 (line 4), column b"));
  EXPECT_EQ(error.offset_bytes(), 4 + 7 + 2);
}

TEST_F(CsvTableTest, RaggedRowsAreRefused) {
  EXPECT_THAT(refusal("a,b\n1,2\n1\n", {{"a"}, {}, ""}),
              AllOf(HasSubstr("at byte 8"), HasSubstr("2 fields in row 2 (line 3)"), HasSubstr("found 1")));
  EXPECT_THAT(refusal("a,b\n1,2,3\n", {{"a"}, {}, ""}), AllOf(HasSubstr("row 1"), HasSubstr("found 3")));
}

TEST_F(CsvTableTest, HeadersAndRowsMustBeThere) {
  EXPECT_THAT(refusal("", {{"a"}, {}, ""}), HasSubstr("an empty file"));
  EXPECT_THAT(refusal("a,b\n", {{"a"}, {}, ""}), HasSubstr("at least one row"));
  EXPECT_THAT(refusal("a,b,a\n1,2,3\n", {{"a"}, {}, ""}), HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal("a,b\n1,2\n", {{"a", "size"}, {}, ""}),
              AllOf(HasSubstr("a column size in the header"), HasSubstr("found a, b")));
  EXPECT_THAT(refusal("5.1,3.5\n1,2\n", {{"a"}, {}, ""}), HasSubstr("looks like a row"));
  EXPECT_THAT(data_error_of([&] {
                CsvTable((folder_ / "none.csv").string(), {{"a"}, {}, ""});
              }).what(),
              AllOf(HasSubstr("none.csv"), HasSubstr("a CSV file"), HasSubstr("No such file")));
}

TEST_F(CsvTableTest, ALabelMayBeWrittenAsANumber) {
  const auto source = table("a,c\n1,1.0\n2,2e0\n3, 0 \n", {{"a"}, {}, "c"});
  for (const std::int64_t i : {0, 1, 2}) EXPECT_EQ(test::Sample(*source, i).label(), (i + 1) % 3);
}

TEST(CsvHeader, ARowOfNumbersIsToldFromNames) {
  EXPECT_TRUE(looks_like_row({"5.1", "3.5", "0"}));
  EXPECT_TRUE(looks_like_row({"0.5"}));
  EXPECT_FALSE(looks_like_row({"0", "1", "2"})) << "what libraries call columns without names";
  EXPECT_FALSE(looks_like_row({"2019", "2020", "2021"}));
  EXPECT_FALSE(looks_like_row({"1.5", "price"}));
}

TEST(CsvFuzz, AFewThousandInputsBreakNoPromise) {
  constexpr std::string_view kAlphabet = "a,b\"\n\r1.5e-9 \xef\xbb\xbf;x";
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    KeyedGenerator generator(seed, 0, 0);
    std::string input;
    for (std::uint64_t left = generator.below(60); left > 0; --left)
      input += kAlphabet[generator.below(kAlphabet.size())];
    fuzz::csv(input);
  }
}

}  // namespace
}  // namespace dtrain
