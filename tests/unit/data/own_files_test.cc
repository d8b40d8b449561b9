// The user's own data: tensors in memory, sources cut in two, and what --dataset csv:… and npy:… mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "runtime/base/error.h"
#include "runtime/data/sources/open_source.h"
#include "runtime/data/sources/tensor_source.h"
#include "tests/support/message_of.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<std::vector<float>> counted(std::size_t count) {
  auto values = std::make_shared<std::vector<float>>(count);
  std::iota(values->begin(), values->end(), 0.0F);
  return values;
}

TEST(TensorSource, RowsOfStridedTensorsAreSamples) {
  const auto values = counted(24);
  std::vector<std::int64_t> labels = {2, 0, 1, 2};
  const View rows{values->data(), DType::f32, {4, 3, 2}, {1, 4, 12}};  // a transposed view
  const TensorSource source("memory", {{"x", rows, values},
                                       {"label", {labels.data(), DType::i64, {4}, {1}}, nullptr, 3},
                                       {"one", {values->data(), DType::f32, {4, 2}, {0, 1}}, values}});
  EXPECT_EQ(source.size(), 4);
  EXPECT_EQ(describe(source.fields()), "x float32 [3, 2], label int64 [], one float32 [2]");
  for (std::int64_t i = 0; i < 4; ++i) {
    const test::Sample sample(source, i);
    const auto f = static_cast<float>(i);
    EXPECT_EQ(sample.values<float>("x"), (std::vector<float>{f, f + 12, f + 4, f + 16, f + 8, f + 20}));
    EXPECT_EQ(sample.label(), labels[static_cast<std::size_t>(i)]);
    EXPECT_EQ(sample.values<float>("one"), (std::vector<float>{0, 1}));
  }
}

TEST(TensorSource, KeepsItsMemory) {
  auto values = counted(8);
  const std::weak_ptr<std::vector<float>> watched = values;
  {
    const TensorSource source("memory", {{"x", {values->data(), DType::f32, {4, 2}, {2, 1}}, values}});
    values.reset();
    EXPECT_EQ(test::Sample(source, 3).values<float>("x"), (std::vector<float>{6, 7}));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(TensorSource, RefusesTensorsThatDoNotBelongTogether) {
  const auto values = counted(8);
  const View four{values->data(), DType::f32, {4, 2}, {2, 1}}, eight{values->data(), DType::f32, {8}, {1}};
  EXPECT_THAT(message_of([&] {
                TensorSource("memory", {{"x", four, values}, {"y", eight, values}});
              }),
              AllOf(HasSubstr("memory: "), HasSubstr("x is [4, 2]"), HasSubstr("y is [8]")));
  EXPECT_THROW(TensorSource("memory", {}), UsageError);
  EXPECT_THROW(TensorSource("memory", {{"x", {values->data(), DType::f32, {}, {}}, values}}), UsageError);
  EXPECT_THROW(TensorSource("memory", {{"x", {nullptr, DType::f32, {4}, {1}}, nullptr}}), UsageError);
  EXPECT_THROW(TensorSource("memory", {{"x", four, values, 3}}), UsageError);
}

TEST(Split, EverySampleIsOnOneSide) {
  for (const std::int64_t size : {2, 3, 10, 1001}) {
    for (const double share : {0.5, 0.7, 0.9}) {
      if (size < 10 && share > 0.7) continue;
      const SplitIndices split = split_indices(size, share, 5);
      EXPECT_NEAR(static_cast<double>(split.train.size()), static_cast<double>(size) * share, 1);
      EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
      EXPECT_TRUE(std::is_sorted(split.test.begin(), split.test.end()));
      std::vector<std::int64_t> all = split.train;
      all.insert(all.end(), split.test.begin(), split.test.end());
      std::sort(all.begin(), all.end());
      ASSERT_EQ(static_cast<std::int64_t>(all.size()), size);
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i);
    }
  }
}

TEST(Split, DependsOnItsSeedAlone) {
  const auto a = split_indices(1000, 0.9, 0), b = split_indices(1000, 0.9, 0),
             c = split_indices(1000, 0.9, 1);
  EXPECT_EQ(a.test, b.test);
  EXPECT_NE(a.test, c.test);
  // Held out are samples of all parts of the file, not its end: each tenth has its share, within 5 sigma.
  std::vector<int> tenths(10, 0);
  for (const std::int64_t index : a.test) ++tenths[static_cast<std::size_t>(index / 100)];
  for (const int count : tenths) EXPECT_NEAR(count, 10, 15);
  // These very samples, on every machine and in every version: a run that is resumed must not learn what was
  // held out.
  EXPECT_EQ(split_indices(10, 0.7, 0).test, (std::vector<std::int64_t>{2, 6, 7}));
}

TEST(Split, AppendedSamplesMoveNoneBeforeThem) {
  for (const double share : {0.5, 0.3, 0.8, 0.9}) {
    const SplitIndices whole = split_indices(400, share, 7);
    for (const std::int64_t size : {40, 41, 199, 200, 201, 399}) {
      const SplitIndices before = split_indices(size, share, 7);
      ASSERT_TRUE(std::equal(before.train.begin(), before.train.end(), whole.train.begin())) << size;
      ASSERT_TRUE(std::equal(before.test.begin(), before.test.end(), whole.test.begin())) << size;
    }
  }
}

TEST(Split, NeitherSideMayBeEmpty) {
  EXPECT_THROW(split_indices(3, 0.9, 0), UsageError);
  EXPECT_THROW(split_indices(1, 0.5, 0), UsageError);
  EXPECT_THROW(split_indices(10, 0.01, 0), UsageError);
  EXPECT_THROW(split_indices(10, 1, 0), UsageError);
}

TEST(Split, FoldsHoldOutEachSampleOnce) {
  for (const std::int64_t size : {5, 23, 100}) {
    std::vector<int> held_out(static_cast<std::size_t>(size));
    for (int fold = 1; fold <= 5; ++fold) {
      const SplitIndices split = split_indices(size, {.seed = 3, .fold = fold, .folds = 5});
      EXPECT_EQ(static_cast<std::int64_t>(split.train.size() + split.test.size()), size);
      EXPECT_NEAR(static_cast<double>(split.test.size()), static_cast<double>(size) / 5, 1);
      for (const std::int64_t index : split.test) ++held_out[static_cast<std::size_t>(index)];
    }
    EXPECT_THAT(held_out, ::testing::Each(1)) << size;
  }
  const auto test_of = [](std::int64_t size, std::uint64_t seed) {
    return split_indices(size, {.seed = seed, .fold = 2, .folds = 4}).test;
  };
  const auto whole = test_of(400, 1), part = test_of(203, 1);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << "appended samples move none";
  EXPECT_NE(test_of(400, 2), whole);
  EXPECT_EQ(test_of(12, 0), (std::vector<std::int64_t>{0, 5, 11})) << "in every version";
  EXPECT_THROW(split_indices(100, {.fold = 0, .folds = 4}), UsageError);
  EXPECT_THROW(split_indices(100, {.fold = 5, .folds = 4}), UsageError);
  EXPECT_THROW(split_indices(100, {.fold = 1, .folds = 1}), UsageError);
}

TEST(Split, StratifiedSidesHaveTheSameClasses) {
  // Of ten samples seven are of class 0, two of class 1 and one of class 5, in any order.
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 100; ++i) labels.insert(labels.end(), {0, 1, 0, 0, 5, 0, 0, 1, 0, 0});
  const auto count = [&](const std::vector<std::int64_t>& indices, std::int64_t label) {
    return std::ranges::count_if(
        indices, [&](std::int64_t i) { return labels[static_cast<std::size_t>(i)] == label; });
  };
  for (const HoldOut& how :
       {HoldOut{.share = 0.8, .stratify = true}, HoldOut{.fold = 3, .folds = 5, .stratify = true},
        HoldOut{.share = 0.2, .seed = 9, .stratify = true}}) {
    const SplitIndices split = split_indices(1000, how, labels);
    const double held_out = how.share == 0.2 ? 0.8 : 0.2;
    for (const auto& [label, all] : {std::pair{0, 700}, {1, 200}, {5, 100}}) {
      EXPECT_NEAR(static_cast<double>(count(split.test, label)), held_out * all, 1) << label;
      EXPECT_EQ(count(split.test, label) + count(split.train, label), all);
    }
    std::vector<std::int64_t> fewer(labels.begin(), labels.begin() + 500);
    const SplitIndices before = split_indices(500, how, fewer);
    EXPECT_TRUE(std::equal(before.test.begin(), before.test.end(), split.test.begin()));
  }
  const std::vector<std::int64_t> rare = {0, 0, 0, 0, 0, 7};
  EXPECT_EQ(split_indices(6, {.share = 0.5, .stratify = true}, rare).train.back(), 5)
      << "the only one of its class";
  EXPECT_THAT(message_of([] { split_indices(10, {.share = 0.5, .stratify = true}); }),
              HasSubstr("samples without classes"));
}

class OwnFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text = "a,b,price,kind\n";
    for (int i = 0; i < 20; ++i) {
      const std::string n = std::to_string(i);
      text += n + "," + n + "5," + n + ".25," + std::to_string(i % 4) + "\n";
    }
    write("table.csv", text);
    write("test.csv", "kind,b,price,a\n2,20,30,10\n");  // the columns in another order
    write("x.npy", test::npy_bytes<float>("<f4", "(20, 2)", *counted(40)));
    write("y.npy", test::npy_bytes<float>("<f4", "(20,)", *counted(20)));
    write("label.npy", test::npy_bytes<std::int64_t>("<i8", "(4,)", {0, 5, 1, 2}));
    write("label2.npy", test::npy_bytes<std::int64_t>("<i8", "(2,)", {3, 0}));
    write("label6.npy", test::npy_bytes<std::int64_t>("<i8", "(1,)", {6}));
  }
  void write(const std::string& name, const std::string& text) { test::write_file(folder_ / name, text); }
  Splits open(const std::string& name) { return open_splits(name, {.data_dir = folder_.path().string()}); }
  std::string refusal(const std::string& name) {
    return message_of([&] { open(name); });
  }

  test::TempDir folder_;
};

TEST_F(OwnFiles, ACsvFileIsCutIntoTrainingAndTest) {
  const Splits splits = open("csv:table.csv,target=price,split=0.75,split-seed=3");
  EXPECT_EQ(splits.train->size(), 15);
  EXPECT_EQ(splits.test->size(), 5);
  EXPECT_EQ(describe(splits.train->fields()), "x float32 [3], y float32 [1]");
  EXPECT_THAT(splits.test->name(), AllOf(HasSubstr("test of csv ("), HasSubstr("table.csv")));
  std::set<float> seen;
  for (const auto& source : {splits.train, splits.test}) {
    for (std::int64_t i = 0; i < source->size(); ++i) {
      const test::Sample sample(*source, i);
      const auto x = sample.values<float>("x");
      EXPECT_EQ(x[1], x[0] * 10 + 5);
      EXPECT_EQ(sample.values<float>("y"), std::vector<float>{x[0] + 0.25F});
      seen.insert(x[0]);
    }
  }
  EXPECT_EQ(seen.size(), 20U);
  const auto again = open_source("csv:table.csv,target=price,split=0.75,split-seed=3", Split::test,
                                 {.data_dir = folder_.path().string()});
  EXPECT_EQ(test::Sample(*again, 2).values<float>("x"), test::Sample(*splits.test, 2).values<float>("x"));
}

TEST_F(OwnFiles, FoldsAndClassesAreCutAsTheyAreNamed) {
  std::multiset<float> seen;
  for (const char* fold : {"1/4", "2/4", "3/4", "4/4"}) {
    const Splits splits = open(std::string("csv:table.csv,target=price,fold=") + fold);
    EXPECT_EQ(splits.train->size(), 15);
    for (std::int64_t i = 0; i < splits.test->size(); ++i)
      seen.insert(test::Sample(*splits.test, i).values<float>("x")[0]);
  }
  EXPECT_EQ(seen.size(), 20U);
  EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 20U);
  // 5 of each of 4 classes, in csv and npy alike.
  std::string text = "a,kind\n";
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 20; ++i) {
    labels.push_back(i / 5);
    text += std::to_string(i) + "," + std::to_string(i / 5) + "\n";
  }
  write("sorted.csv", text);
  write("label.npy", test::npy_bytes<std::int64_t>("<i8", "(20,)", labels));
  for (const char* name : {"csv:sorted.csv,label=kind,split=0.8,stratify=yes",
                           "npy:x=x.npy,label=label.npy,split=0.8,stratify=yes"}) {
    const Splits splits = open(name);
    std::vector<std::int64_t> held_out;
    for (std::int64_t i = 0; i < splits.test->size(); ++i)
      held_out.push_back(test::Sample(*splits.test, i).label());
    EXPECT_THAT(held_out, ElementsAre(0, 1, 2, 3)) << name;
  }
  EXPECT_THAT(refusal("npy:x=x.npy,y=y.npy,split=0.8,stratify=yes"), HasSubstr("samples without classes"));
}

TEST_F(OwnFiles, ATestFileMayHaveItsColumnsInAnotherOrder) {
  const Splits splits = open("csv:table.csv,label=kind,target=price,test=test.csv");
  EXPECT_EQ(splits.train->size(), 20);
  const test::Sample sample(*splits.test, 0);
  EXPECT_EQ(sample.values<float>("x"), (std::vector<float>{10, 20}));
  EXPECT_EQ(sample.values<float>("y"), std::vector<float>{30});
  EXPECT_EQ(sample.label(), 2);
  EXPECT_EQ(find_field(splits.test->fields(), "label")->values, 4)
      << "as many classes as in the training file";
  write("test.csv", "kind,b,price,a\n4,20,30,10\n");
  EXPECT_THAT(refusal("csv:table.csv,label=kind,test=test.csv"),
              AllOf(HasSubstr("test.csv"), HasSubstr("a class from 0 to 3"), HasSubstr("\"4\"")));
  EXPECT_EQ(open("csv:table.csv,label=kind,classes=5,test=test.csv").train->fields()[1].values, 5);
}

TEST_F(OwnFiles, ColumnsAreChosenByName) {
  EXPECT_EQ(describe(open("csv:table.csv,features=b,target=a+price,split=0.5").train->fields()),
            "x float32 [1], y float32 [2]");
  write("odd.csv", "a+b;c,d;50%\n1;2;3\n4;5;6\n");
  const Splits odd = open("csv:odd.csv,delimiter=;,features=c%2Cd,target=a%2Bb+50%25,split=0.5");
  EXPECT_EQ(describe(odd.train->fields()), "x float32 [1], y float32 [2]");
}

TEST_F(OwnFiles, CsvNamesThatMakeNoSenseAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"csv:", "a file or key=value"},
      {"csv:target=price,split=0.9", "a file first"},
      {"csv:table.csv,split=0.9", "what is to be learned"},
      {"csv:table.csv,target=price", "neither"},
      {"csv:table.csv,target=price,split=0.9,test=test.csv", "both"},
      {"csv:table.csv,target=price,split=1.5", "a share between 0 and 1"},
      {"csv:table.csv,target=price,split=x", "a share between 0 and 1"},
      {"csv:table.csv,target=price,split=0.9,fold=1/5", "either a share"},
      {"csv:table.csv,target=price,fold=0/5", "K/N with K from 1 to N"},
      {"csv:table.csv,target=price,fold=6/5", "K/N"},
      {"csv:table.csv,target=price,fold=2", "K/N"},
      {"csv:table.csv,target=price,fold=1/2x", "K/N"},
      {"csv:table.csv,target=price,split=0.9,stratify=yes", "samples without classes"},
      {"csv:table.csv,label=kind,split=0.9,stratify=kind", "stratify to be yes or no"},
      {"csv:table.csv,label=kind,test=test.csv,stratify=yes", "stratify only with split or fold"},
      {"csv:table.csv,target=price,split=0.99", "leaves samples on both sides"},
      {"csv:table.csv,target=price,target=a,split=0.9", "target once"},
      {"csv:table.csv,target=price,features=a+price,split=0.9", "each column once"},
      {"csv:table.csv,target=price,label=price,split=0.9", "each column once"},
      {"csv:table.csv,target=a+b+price+kind,split=0.9", "neither target nor label"},
      {"csv:table.csv,targets=price,split=0.9", "\"targets=price\""},
      {"csv:table.csv,target=price,split=0.9,delimiter=ab", "one character"},
      {"csv:table.csv,target=,split=0.9", "target=A or target=A+B"},
      {"csv:table.csv,target=price,test=", "a value for test"},
      {"csv:table.csv,target=p%2,split=0.9", "two hexadecimal digits"},
      {"csv:table.csv,target=price,split=0.9,", "key=value between commas"},
      {"csv:table.csv,table2.csv,target=price,split=0.9", "key=value"},
      {"csv:table.csv,label=kind,classes=-1,split=0.9", "classes to be an integer"},
      {"csv:table.csv,target=cost,split=0.9", "a column cost in the header"},
  };
  for (const auto& [name, part] : cases) EXPECT_THAT(refusal(name), HasSubstr(part)) << name;
}

TEST_F(OwnFiles, ColumnsAreKnownByName) {
  using Names = std::vector<std::string>;
  const Splits splits = open("csv:table.csv,target=price,features=b+a,split=0.75");
  EXPECT_EQ(splits.train->fields()[0].columns, (Names{"b", "a"}));
  EXPECT_EQ(splits.test->fields()[1].columns, Names{"price"});
  EXPECT_EQ(open("csv:table.csv,label=kind,test=test.csv").test->fields()[0].columns,
            (Names{"a", "b", "price"}));
  write("spaces.csv", " a , price\n1,2\n3,4\n");
  EXPECT_EQ(open("csv:spaces.csv,target=price,split=0.5").train->fields()[0].columns, Names{"a"});
  write("latin.csv",
        "gr\xf6\xdf"
        "e,price\n1,2\n3,4\n");
  EXPECT_EQ(open("csv:latin.csv,target=price,split=0.5").train->fields()[0].columns, Names{"größe"});
}

TEST_F(OwnFiles, ColumnsThatAreNotUsedNeedNoName) {
  write("index.csv", ",a,a,price\n0,1,x,2\n1,3,y,4\n");
  EXPECT_THAT(refusal("csv:index.csv,target=price,split=0.5"), HasSubstr("each column once"));
  EXPECT_THAT(refusal("csv:index.csv,target=price,features=a,split=0.5"), HasSubstr("\"a\" twice"));
  write("index.csv", ",a,note,note,price\n0,1,x,x,2\n1,3,y,y,4\n");
  EXPECT_EQ(open("csv:index.csv,target=price,features=a,split=0.5").train->size(), 1);
}

TEST_F(OwnFiles, LabelsThatCountNoClassesAreRefused) {
  write("years.csv", "a,when,day\n1,2022,20240115\n2,2023,20240116\n3,2024,20240117\n");
  EXPECT_THAT(refusal("csv:years.csv,label=when,features=a,split=0.5"),
              AllOf(HasSubstr("3 different ones from 2022 to 2024"), HasSubstr("classes=N")));
  EXPECT_THAT(refusal("csv:years.csv,label=day,features=a,split=0.5"), HasSubstr("20240117"));
  EXPECT_EQ(open("csv:years.csv,label=when,features=a,classes=2025,split=0.5").train->fields()[1].values,
            2025);
  write("label.npy", test::npy_bytes<std::int64_t>("<i8", "(3,)", {2022, 2023, 2024}));
  EXPECT_THAT(refusal("npy:label=label.npy,split=0.5"), HasSubstr("from 2022 to 2024"));
}

TEST_F(OwnFiles, WhatACellHoldsReachesNoTerminal) {
  write("odd.csv", "a,price\n\x1b[2J\x9b,2\n3,4\n");
  const std::string refused = refusal("csv:odd.csv,target=price,split=0.5");
  EXPECT_THAT(refused, HasSubstr("\"\\x1b[2J\\x9b\""));
  EXPECT_EQ(refused.find('\x1b'), std::string::npos);
}

TEST_F(OwnFiles, ASampleKnowsItsPlaceInTheFile) {
  const Splits splits = open("csv:table.csv,target=price,split=0.75");
  for (const auto& source : {splits.train, splits.test}) {
    for (std::int64_t i = 0; i < source->size(); ++i)
      EXPECT_EQ(test::Sample(*source, i).values<float>("x")[0], static_cast<float>(source->place_of(i)));
  }
  const std::int64_t last = splits.test->size() - 1, place = splits.test->place_of(last);
  EXPECT_EQ(place_name(*splits.test, last),
            std::to_string(last) + " (" + std::to_string(place) + " of the file)");
}

TEST_F(OwnFiles, NpyFilesAreFieldsByName) {
  const Splits splits = open("npy:x=x.npy,y=y.npy,split=0.9");
  EXPECT_EQ(splits.train->size(), 18);
  EXPECT_EQ(splits.test->size(), 2);
  EXPECT_EQ(describe(splits.test->fields()), "x float32 [2], y float32 []");
  for (std::int64_t i = 0; i < 18; ++i) {
    const test::Sample sample(*splits.train, i);
    EXPECT_EQ(sample.values<float>("x")[0], sample.values<float>("y")[0] * 2);
  }
  const Splits labels = open("npy:label=label.npy,test.label=label2.npy");
  EXPECT_EQ(labels.train->size(), 4);
  EXPECT_EQ(labels.test->size(), 2);
  EXPECT_EQ(labels.test->fields()[0].values, 6) << "as many classes as in the training file";
}

TEST_F(OwnFiles, NpyNamesThatMakeNoSenseAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"npy:", "a file or key=value"},
      {"npy:x.npy,split=0.9", "FILE.npz or NAME=FILE first"},
      {"idx:x,split=0.9", "NAME=FILE first"},
      {"idx:x=none,split=0.5", "none"},
      {"npy:none.npz,split=0.5", "none.npz"},
      {"npy:split=0.9", "at least one field"},
      {"npy:x=x.npy", "neither"},
      {"npy:x=x.npy,test.x=x.npy,split=0.9", "both"},
      {"npy:x=x.npy,y=y.npy,test.x=x.npy", "test.y=FILE beside y"},
      {"npy:x=x.npy,test.x=x.npy,test.y=y.npy", "y=FILE beside test.y"},
      {"npy:x=x.npy,test.x=y.npy", "test files like the training files: x float32 [2]"},
      {"npy:x=x.npy,label=label.npy,split=0.5", "20 samples, as in"},
      {"npy:label=label.npy,test.label=label6.npy", "a class from 0 to 5"},
      {"npy:x=none.npy,split=0.5", "none.npy"},
  };
  for (const auto& [name, part] : cases) EXPECT_THAT(refusal(name), HasSubstr(part)) << name;
}

}  // namespace
}  // namespace dtrain
