// Tables as people bring them: texts that are categories and classes, missing values, separators, scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/base/error.h"
#include "runtime/data/formats/csv_cell.h"
#include "runtime/data/sources/csv_source.h"
#include "runtime/data/sources/open_source.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Tables : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { test::write_file(folder_ / name, text); }
  Splits open(const std::string& name, Log* log = nullptr) {
    return open_splits(name, {.data_dir = folder_.path().string(), .log = log});
  }
  /// What `text` means as a table that is cut in two; all samples, by their x.
  std::multiset<std::vector<float>> all_x(const std::string& text, const std::string& settings) {
    write("table.csv", text);
    splits_ = open("csv:table.csv,split=0.5," + settings);
    std::multiset<std::vector<float>> found;
    for (const auto& source : {splits_.train, splits_.test})
      for (std::int64_t i = 0; i < source->size(); ++i)
        found.insert(test::Sample(*source, i).values<float>("x"));
    return found;
  }
  const Field& field(std::size_t i) const { return splits_.train->fields()[i]; }
  std::string refusal(const std::string& text, const std::string& settings) {
    write("table.csv", text);
    return message_of([&] { open("csv:table.csv,split=0.5," + settings); });
  }

  test::TempDir folder_;
  Splits splits_;
};

using Rows = std::multiset<std::vector<float>>;

TEST_F(Tables, AColumnOfTextsIsAColumnForEachOfThem) {
  const std::string text = "sex,age,port\nmale,1,S\nfemale,2,C\n male ,3,Q\nfemale,4,S\n";
  EXPECT_EQ(all_x(text, "target=age"),
            (Rows{{0, 1, 0, 0, 1}, {1, 0, 1, 0, 0}, {0, 1, 0, 1, 0}, {1, 0, 0, 0, 1}}));
  EXPECT_THAT(field(0).columns, ElementsAre("sex=female", "sex=male", "port=C", "port=Q", "port=S"));
  EXPECT_EQ(all_x(text, "target=age,features=sex"), (Rows{{0, 1}, {0, 1}, {1, 0}, {1, 0}}));
  EXPECT_EQ(all_x(text, "target=age,without=port"), (Rows{{0, 1}, {0, 1}, {1, 0}, {1, 0}}));
  EXPECT_EQ(all_x("a,ok\n1,True\n2,False\n", "target=a"), (Rows{{0, 1}, {1, 0}}));
}

TEST_F(Tables, NumbersAreCategoriesWhereThatIsSaid) {
  EXPECT_EQ(all_x("a,zip\n1,10\n2,9\n3,10\n", "target=a"), (Rows{{10}, {9}, {10}}));
  EXPECT_EQ(all_x("a,zip\n1,10\n2,9\n3,10\n", "target=a,categories=zip"), (Rows{{0, 1}, {1, 0}, {0, 1}}));
  EXPECT_THAT(field(0).columns, ElementsAre("zip=9", "zip=10"));
  EXPECT_EQ(all_x("a,size\n1,2\n2,3+\n", "target=a,categories=size"), (Rows{{1, 0}, {0, 1}}));
  EXPECT_THAT(refusal("a,zip\n1,10\n2,9\n", "target=a,categories=zap"),
              HasSubstr("a column zap in the header"));
}

TEST_F(Tables, AnotherFileIsReadByTheCategoriesOfTheFirst) {
  write("train.csv", "kind,sex,a\ncat,m,1\ndog,f,2\ndog,m,3\n");
  write("test.csv", "a,sex,kind\n4,f,cat\n");
  const Splits splits = open("csv:train.csv,label=kind,test=test.csv");
  const test::Sample sample(*splits.test, 0);
  EXPECT_EQ(sample.values<float>("x"), (std::vector<float>{1, 0, 4}));
  EXPECT_EQ(sample.label(), 0);
  EXPECT_EQ(std::vector(splits.test->fields().begin(), splits.test->fields().end()),
            std::vector(splits.train->fields().begin(), splits.train->fields().end()));
  write("test.csv", "a,sex,kind\n4,x,cat\n");
  EXPECT_THAT(message_of([&] { open("csv:train.csv,label=kind,test=test.csv"); }),
              AllOf(HasSubstr("test.csv: at byte 13"), HasSubstr("one of f, m in row 1 (line 2), column sex"),
                    HasSubstr("found \"x\"")));
  write("test.csv", "a,sex,kind\n4,m,cow\n");
  EXPECT_THAT(message_of([&] { open("csv:train.csv,label=kind,test=test.csv"); }),
              AllOf(HasSubstr("one of cat, dog"), HasSubstr("column kind"), HasSubstr("\"cow\"")));
}

TEST_F(Tables, AFewRowsAreReadByTheManyCategoriesOfAnotherFile) {
  std::string text = "month,a\n";
  for (int i = 0; i < 48; ++i) text += "m" + std::to_string(i % 12) + "," + std::to_string(i) + "\n";
  write("train.csv", text);
  write("test.csv", "month,a\nm3,7\n");
  const Splits splits = open("csv:train.csv,target=a,test=test.csv");
  ASSERT_EQ(splits.test->size(), 1);
  const auto x = test::Sample(*splits.test, 0).values<float>("x");
  EXPECT_EQ(x.size(), 12U);
  EXPECT_EQ(
      splits.train->fields()[0].columns[static_cast<std::size_t>(std::ranges::find(x, 1.0F) - x.begin())],
      "month=m3");
}

TEST_F(Tables, AnIndicatorIsReadByItsName) {
  write("table.csv", "a=b,c,sex\n5,1,m\n6,2,f\n");
  const auto table = std::make_shared<const CsvTable>((folder_ / "table.csv").string(),
                                                      CsvColumns{{"a=b", "sex=f", "sex=m", "c"}, {}, ""});
  const auto source = CsvTable::source(table, "table", 0);
  EXPECT_EQ(test::Sample(*source, 0).values<float>("x"), (std::vector<float>{5, 0, 1, 1}));
  EXPECT_EQ(test::Sample(*source, 1).values<float>("x"), (std::vector<float>{6, 1, 0, 2}));
}

TEST_F(Tables, LabelsThatAreNoNumbersOfClassesGetNames) {
  const struct {
    const char *labels[4], *settings;
    std::vector<std::string> names;
    std::int64_t of_last;
  } cases[] = {
      {{"setosa", "virginica", "setosa", "versicolor"}, "", {"setosa", "versicolor", "virginica"}, 1},
      {{"True", "False", "True", "True"}, "", {"False", "True"}, 1},
      {{"1", "-1", "1", "-1"}, "", {"-1", "1"}, 0},
      {{"2.5", "10.5", "2.5", "10.5"}, "", {"2.5", "10.5"}, 1},
      {{"2022", "2023", "2022", "2023"}, ",categories=k", {"2022", "2023"}, 1},
      {{"2", "3+", "2", "3+"}, ",categories=k", {"2", "3+"}, 1},
      {{"0", "2", "1", "2.0"}, "", {}, 2},
  };
  for (const auto& each : cases) {
    std::string text = "a,k\n";
    for (int i = 0; i < 4; ++i) text += std::to_string(i) + "," + each.labels[i] + "\n";
    all_x(text, std::string("label=k") + each.settings);
    EXPECT_EQ(field(1).value_names, each.names);
    const auto classes = each.names.empty() ? 3 : static_cast<std::int64_t>(each.names.size());
    EXPECT_EQ(field(1).values, classes);
    for (const auto& source : {splits_.train, splits_.test}) {
      for (std::int64_t i = 0; i < source->size(); ++i) {
        const test::Sample sample(*source, i);
        if (sample.values<float>("x")[0] != 3) continue;
        EXPECT_EQ(sample.label(), each.of_last) << each.labels[0];
      }
    }
  }
}

TEST_F(Tables, LabelsThatCannotBeClassesAreRefusedWithAWayOut) {
  EXPECT_THAT(refusal("a,k\n1,0\n2,x\n3,1\n", "label=k"),
              AllOf(HasSubstr("row 2 (line 3), column k"), HasSubstr("\"x\""), HasSubstr("categories=k")));
  EXPECT_THAT(refusal("a,k\n1,2022\n2,2023\n3,2022\n", "label=k"),
              AllOf(HasSubstr("2 different ones from 2022 to 2023"), HasSubstr("categories=k")));
  EXPECT_THAT(refusal("a,k\n1,x\n2,y\n3,z\n", "label=k,classes=2"), HasSubstr("at most 2 different labels"));
  std::string prices = "a,price\n", names = "a,name\n";
  for (int i = 0; i < 20; ++i) {
    prices += std::to_string(i) + "," + std::to_string(i) + ".5\n";
    names += std::to_string(i) + ",n" + std::to_string(i) + "\n";
  }
  EXPECT_THAT(refusal(prices, "label=price"),
              AllOf(HasSubstr("labels that repeat"), HasSubstr("target=price")));
  EXPECT_THAT(refusal(names, "label=name"),
              AllOf(HasSubstr("20 different ones in 20 rows"), Not(HasSubstr("target="))));
  EXPECT_THAT(refusal("a,k\n1,x\n2,y\n", "target=k"), AllOf(HasSubstr("a number"), HasSubstr("label=k")));
}

TEST_F(Tables, ColumnsThatTellNothingAreNamedTogether) {
  std::string text = "name,day,colour,price\n";
  for (int i = 0; i < 20; ++i) {
    const std::string n = std::to_string(i);
    text += "n" + n + ",2020-01-" + n + "," + (i % 2 == 0 ? "red" : "blue") + "," + n + "\n";
  }
  EXPECT_THAT(refusal(text, "target=price"),
              AllOf(HasSubstr("name (20 in 20 rows: \"n0\", \"n1\", \"n2\", …)"), HasSubstr("day (20"),
                    HasSubstr("without=name+day"), Not(HasSubstr("colour"))));
  EXPECT_EQ(all_x(text, "target=price,without=name+day").count({0, 1}), 10U);
  EXPECT_EQ(all_x(text, "target=price,features=day,categories=day").begin()->size(), 20U);
  EXPECT_THAT(refusal(text, "target=price,without=date"), HasSubstr("a column date in the header"));
  EXPECT_THAT(refusal(text, "target=price,without=day,features=name"),
              HasSubstr("either features or without"));
  EXPECT_THAT(refusal(
                  "a+b,c\nx1,1\n" +
                      [] {
                        std::string rows;
                        for (int i = 0; i < 20; ++i) rows += "y" + std::to_string(i) + ",2\n";
                        return rows;
                      }(),
                  "target=c"),
              HasSubstr("without=a%2Bb"));
}

TEST_F(Tables, AColumnOfNumbersWithATextIsRefusedWhereverItStands) {
  for (const char* rows : {"x,1\n2,2\n3,3\n", "2,1\nx,2\n3,3\n", "2,1\n3,3\nx,2\n"}) {
    EXPECT_THAT(refusal(std::string("a,b\n") + rows, "target=b"),
                AllOf(HasSubstr("a number in row"), HasSubstr("found \"x\""), HasSubstr("categories=a"),
                      HasSubstr("without=a")));
  }
  for (const char* number : {"12%", "$5", "\"3,5\""}) {
    EXPECT_THAT(refusal(std::string("a,b\n") + number + ",1\n" + number + ",2\n", "target=b"),
                AllOf(HasSubstr("a number in row 1 (line 2), column a"), HasSubstr("decimal=comma")));
  }
}

TEST_F(Tables, ThousandsMayBeSeparated) {
  const Rows expected{{1234.5F, -2}, {12, 1'000'000}};
  EXPECT_EQ(all_x("a,b,y\n\"1,234.5\",-2,1\n12,\"1,000,000\",2\n", "target=y,thousands=comma"), expected);
  EXPECT_EQ(all_x("a;b;y\n1.234,5;-2;1\n12;1.000.000;2\n", "target=y,decimal=comma,thousands=point"),
            expected);
  EXPECT_EQ(all_x("a,b,y\n1'234.5,-2,1\n12,1'000'000,2\n", "target=y,thousands=apostrophe"), expected);
  EXPECT_EQ(all_x("a,b,y\n1 234.5,-2,1\n12,1 000 000,2\n", "target=y,thousands=space"), expected);
  const NumberFormat english{'.', ','};
  EXPECT_EQ(number_in(" -1,234e1 ", english), -12340);
  EXPECT_EQ(number_in("+1,234.5", english), 1234.5);
  EXPECT_EQ(number_in("12345", english), 12345) << "not every number has them";
  for (const char* none : {"1,23", "1,2345", ",123", "1,,234", "1234,567", "1,234,", "1.5,123", "-,123", ","})
    EXPECT_FALSE(number_in(none, english)) << none;
  EXPECT_FALSE(number_in("1.5", {',', '\0'})) << "a point is no comma";
  EXPECT_EQ(integer_in("1,234", english), 1234);
  // What the error proposes.
  EXPECT_THAT(refusal("a,b\n\"1,234\",1\n", "target=b"),
              AllOf(HasSubstr("thousands=comma"), HasSubstr("decimal=comma")));
  EXPECT_THAT(refusal("a,b\n1 234,1\n", "target=b"), HasSubstr("thousands=space"));
  EXPECT_THAT(refusal("a;b\n1.234;1\n", "target=b,decimal=comma"), HasSubstr("thousands=point"));
  EXPECT_THAT(refusal("a,b\n\"1,23\",1\n", "target=b,thousands=comma"),
              AllOf(HasSubstr("a number in row 1"), Not(HasSubstr("thousands="))));
  EXPECT_THAT(refusal("a,b\n1,2\n", "target=b,thousands=dot"),
              HasSubstr("comma, point, space or apostrophe"));
  EXPECT_THAT(refusal("a;b\n1;2\n", "target=b,thousands=comma,decimal=comma"),
              HasSubstr("other than the fraction"));
}

TEST_F(Tables, MissingValuesAreCountedOrLeftOut) {
  const std::string text = "a,b,c,k\n1,,3,x\nNA,5,6,y\n7,8,?,x\n9,10,11,y\n12,nan,13,x\n1,2,3,y\n";
  EXPECT_THAT(refusal(text, "label=k"),
              AllOf(HasSubstr("at byte 10"), HasSubstr("a number in row 1 (line 2), column b"),
                    HasSubstr("found nothing"), HasSubstr("4 of 6 rows (a 1, b 2, c 1)"),
                    HasSubstr("missing=skip leaves such rows out"), HasSubstr("missing=mean"),
                    HasSubstr("without=A+B")));
  EXPECT_EQ(all_x(text, "label=k,missing=skip"), (Rows{{9, 10, 11}, {1, 2, 3}}));
  EXPECT_EQ(all_x(text, "label=k,missing=skip,without=b+c"), (Rows{{1}, {7}, {9}, {12}, {1}}));
  EXPECT_EQ(all_x(text, "label=k,features=c,missing=skip").size(), 5U)
      << "columns that are not used do not count";
  EXPECT_THAT(refusal("a,k\n1,x\n2,\n3,y\n", "label=k"), HasSubstr("a class in row 2 (line 3), column k"));
  EXPECT_THAT(refusal("s,b\nx,1\n,2\n", "target=b"),
              AllOf(HasSubstr("a value in row 2 (line 3), column s"), Not(HasSubstr("missing=mean"))));
  EXPECT_THAT(refusal("a,b\n,1\n,2\n", "target=b,missing=skip"),
              AllOf(HasSubstr("none in 2 rows"), HasSubstr("a 2; without=a leaves out")));
  EXPECT_THAT(refusal("a,b\n1,1\n", "target=b,missing=median"),
              HasSubstr("missing to be stop, skip or mean"));
  EXPECT_THAT(
      refusal("a,empty,b\n1,,1\n2,,2\n,4,3\n", "target=b"),
      AllOf(HasSubstr("(a 1, empty 2)"), HasSubstr("without=empty leaves out columns that lack most")));
  std::string names = "name,a,b\n,,1\n";
  for (int i = 0; i < 20; ++i) names += "n" + std::to_string(i) + ",1,2\n";
  EXPECT_THAT(refusal(names, "target=b"),
              AllOf(HasSubstr("without=name; values are missing, too: name 1, a 1; missing=skip")));
  EXPECT_TRUE(is_missing(" N/A "));
  EXPECT_FALSE(is_missing("none at all"));
  write("table.csv", text);
  write("test.csv", "k,a,b,c\nx,1,2,\ny,1,2,3\n");
  EXPECT_EQ(open("csv:table.csv,label=k,features=c,missing=skip,test=test.csv").test->size(), 1);
  EXPECT_EQ(open("csv:table.csv,label=k,features=a,missing=skip,test=test.csv").test->size(), 2);
}

class KeptLog final : public Log {
 public:
  void write(LogLevel, std::string_view message) noexcept override { text += message; }
  std::string text;
};

TEST_F(Tables, WhatWasLeftOutAndFoundIsReported) {
  write("table.csv", "a,s,b\n1,x,1\n,y,2\n3,x,3\n4,z,\n5,y,5\n");
  KeptLog log;
  open("csv:table.csv,target=b,missing=skip,split=0.5", &log);
  EXPECT_THAT(log.text, HasSubstr("table.csv: 2 of 5 rows left out, where values are missing: a 1, b 1; "
                                  "categories: s (2)"));
}

/// How often the first feature of `source` has no value; the sum of those that it has.
std::pair<std::int64_t, double> first_column(const Source& source) {
  std::int64_t missing = 0;
  double sum = 0;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const float value = test::Sample(source, i).values<float>("x")[0];
    if (std::isnan(value)) ++missing;
    if (!std::isnan(value)) sum += value;
  }
  return {missing, sum};
}

TEST_F(Tables, MissingNumbersMayBecomeTheMeanOfTheTrainingRows) {
  write("train.csv", "a,s,y\n1,u,0\nNA,v,1\n5,u,0\n3,v,\n?,u,1\n");
  write("test.csv", "s,a,y\nu,,0\nv,100,1\n");
  KeptLog log;
  const Splits splits = open("csv:train.csv,target=y,test=test.csv,missing=mean", &log);
  EXPECT_THAT(log.text, HasSubstr("1 of 5 rows left out, where values are missing: y 1; missing values that "
                                  "become the column's mean: a 2; categories: s (2)"));
  EXPECT_EQ(splits.train->size(), 4);
  EXPECT_EQ(splits.train->fields()[0].fill, (std::vector<float>{3, 0.75F, 0.25F}))
      << "of 1 and 5; of u, v, u, u";
  EXPECT_EQ(splits.test->fields()[0].fill, splits.train->fields()[0].fill) << "the training rows' mean";
  EXPECT_EQ(first_column(*splits.train), std::pair(std::int64_t{2}, 6.0)) << "the network fills in";
  EXPECT_EQ(first_column(*splits.test), std::pair(std::int64_t{1}, 100.0));
  // As SimpleImputer and then StandardScaler: what is filled in counts.
  const Splits scaled = open("csv:train.csv,target=y,test=test.csv,missing=mean,scale=standard");
  EXPECT_EQ(scaled.train->fields()[0].mean[0], 3);
  EXPECT_FLOAT_EQ(scaled.train->fields()[0].deviation[0], std::sqrt(2.0F));
  EXPECT_TRUE(
      open("csv:test.csv,target=y,split=0.5,missing=skip,features=s").train->fields()[0].fill.empty());
}

TEST_F(Tables, RowsThatAreHeldOutTellNothingOfTheMean) {
  std::string text = "a,y\n";
  for (int i = 0; i < 40; ++i)
    text += (i % 4 == 0 ? "" : std::to_string(i * i)) + "," + std::to_string(i) + "\n";
  write("table.csv", text);
  const Splits cut = open("csv:table.csv,target=y,split=0.7,missing=mean");
  const auto [missing, sum] = first_column(*cut.train);
  EXPECT_GT(missing, 0);
  EXPECT_NEAR(cut.train->fields()[0].fill[0], sum / static_cast<double>(cut.train->size() - missing), 1e-3);
}

TEST_F(Tables, WhatHasNoMeanIsNamed) {
  EXPECT_THAT(refusal("s,t,a,y\nx,p,1,1\n,q,,2\nx,,3,3\ny,q,1,4\n", "target=y,missing=mean"),
              AllOf(HasSubstr("a text in row 2 (line 3), column s"), HasSubstr("found nothing"),
                    HasSubstr("missing=mean is for columns of numbers"), HasSubstr("without=s+t")));
  EXPECT_THAT(refusal("a,z,y\n1,10,1\n2,,2\n1,10,3\n2,20,4\n", "target=y,missing=mean,categories=z"),
              HasSubstr("without=z"));
  EXPECT_THAT(refusal("a,e f,g,y\n1,,,1\n2,NA,,2\n", "target=y,missing=mean"),
              AllOf(HasSubstr("none of e f, g"), HasSubstr("leave them out with without=e f+g")));
  EXPECT_THAT(refusal("a,y\n1,\n2,\n", "target=y,missing=mean"), HasSubstr("none in 2 rows"));
  write("train.csv", "s,y\nu,1\nv,2\n");
  write("test.csv", "s,y\n,1\n");
  EXPECT_THAT(message_of([&] { open("csv:train.csv,target=y,test=test.csv,missing=mean"); }),
              AllOf(HasSubstr("test.csv"), HasSubstr("column s"), HasSubstr("without=s")));
}

TEST_F(Tables, SeparatorsAreFound) {
  const Rows expected{{1, 2}, {4, 5}};
  EXPECT_EQ(all_x("a;b;c\n1;2;3\n4;5;6\n", "target=c"), expected);
  EXPECT_EQ(all_x("a\tb\tc\r\n1\t2\t3\r\n4\t5\t6\r\n", "target=c"), expected);
  EXPECT_EQ(all_x("a|b|c\n1|2|3\n4|5|6\n", "target=c"), expected);
  EXPECT_EQ(all_x("  a b  c\n 1 \t2 3 \n\n4 5 6", "target=c"), expected);
  EXPECT_EQ(all_x("\"a,b\";b;c\n1;2;3\n4;5;6\n", "target=c"), expected);
  EXPECT_EQ(all_x("a,b;d,c\n1,2,3\n4,5,6\n", "target=c"), expected) << "a comma wins";
  EXPECT_EQ(all_x("a;b;c\n1,0;2,0;3\n4;5,0;6\n", "target=c,decimal=comma"), expected);
  EXPECT_EQ(all_x("a_b_c\n1_2_3\n4_5_6\n", "target=c,delimiter=_"), expected);
  for (const auto& [text, found] :
       {std::pair{"living area\n5\n", ','}, {"a b\n1 2 3\n", ','}, {"", ','}, {"a;b", ';'}}) {
    write("table.csv", text);
    EXPECT_EQ(find_delimiter((folder_ / "table.csv").string()), found) << text;
  }
  EXPECT_THAT(refusal("a,b\n1,2\n", "target=b,delimiter=none"), HasSubstr("comma, semicolon, space or tab"));
  EXPECT_THAT(refusal("a,b\n1,2\n", "target=b,decimal=x"), HasSubstr("decimal to be point or comma"));
}

TEST_F(Tables, AFirstColumnWithoutANameNumbersTheRows) {
  EXPECT_EQ(all_x(",a,b\n0,1,2\n1,3,4\n", "target=b"), (Rows{{1}, {3}}));
  EXPECT_THAT(refusal("a,,b\n0,1,2\n1,3,4\n", "target=b"), HasSubstr("a name for column 2"));
}

TEST_F(Tables, AFileMayHaveNoHeaderOrOneInSingleQuotes) {
  EXPECT_THAT(refusal("1,2,30\n4,5,60\n", "target=price"), HasSubstr("header=none calls them 0, 1, 2"));
  EXPECT_THAT(refusal("0,0,5\n4,5,60\n", "label=2"), HasSubstr("a column 2 in the header"));
  EXPECT_EQ(all_x("1,2,30\n4,5,60\n", "target=2,header=none"), (Rows{{1, 2}, {4, 5}}));
  EXPECT_THAT(field(0).columns, ElementsAre("0", "1"));
  EXPECT_THAT(refusal("1,2\n3\n", "target=1,header=none"), HasSubstr("2 fields in row 2 (line 2)"));
  EXPECT_THAT(refusal("1,2\n", "target=1,header=no"), HasSubstr("header to be names or none"));
  EXPECT_EQ(all_x("'a'\t'b'\n1\t2\n3\t4\n", "target=b"), (Rows{{1}, {3}}));
  EXPECT_EQ(all_x("'a',b\n1,2\n3,4\n", "target='a'"), (Rows{{2}, {4}}));
}

TEST_F(Tables, FieldsSayHowColumnsAreScaled) {
  write("train.csv", "a,b,s,y\n1,7,u,0\n3,7,v,1\n5,7,u,0\n");
  write("test.csv", "a,b,s,y\n100,8,u,0\n");
  const Splits splits = open("csv:train.csv,target=y,test=test.csv,scale=standard");
  const Field& x = splits.test->fields()[0];
  EXPECT_EQ(x.columns, (std::vector<std::string>{"a", "b", "s=u", "s=v"}));
  ASSERT_EQ(x.mean.size(), 4U);
  const float mean[] = {3, 7, 2.0F / 3, 1.0F / 3}, deviation[] = {1.632993F, 1, 0.471405F, 0.471405F};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(x.mean[i], mean[i], 1e-6);
    EXPECT_NEAR(x.deviation[i], deviation[i], 1e-6);
  }
  EXPECT_EQ(test::Sample(*splits.test, 0).values<float>("x"), (std::vector<float>{100, 8, 1, 0}))
      << "the network scales, not the source";
  EXPECT_TRUE(open("csv:train.csv,target=y,test=test.csv").train->fields()[0].mean.empty());
  // Rows that are held out tell nothing.
  const Splits cut = open("csv:train.csv,target=y,split=0.7,scale=standard");
  double sum = 0;
  for (std::int64_t i = 0; i < cut.train->size(); ++i)
    sum += test::Sample(*cut.train, i).values<float>("x")[0];
  EXPECT_NEAR(cut.train->fields()[0].mean[0], sum / static_cast<double>(cut.train->size()), 1e-6);
  EXPECT_THAT(message_of([&] { open("csv:train.csv,target=y,split=0.7,scale=max"); }),
              HasSubstr("scale to be none or standard"));
}

}  // namespace
}  // namespace dtrain
