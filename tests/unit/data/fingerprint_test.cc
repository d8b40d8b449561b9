// What tells data sets apart: every value of a small one, columns, order and size; the same of what was
// appended to.
#include "runtime/data/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <utility>

#include "runtime/data/sources/tensor_source.h"

namespace dtrain {
namespace {

using ::testing::HasSubstr;

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

/// Two columns of `values`.
TensorSource table(std::vector<float> values, std::vector<std::string> columns = {"a", "b"}) {
  const auto owner = std::make_shared<std::vector<float>>(std::move(values));
  const auto rows = static_cast<std::int64_t>(owner->size()) / 2;
  return {"table", {{"x", {owner->data(), DType::f32, {rows, 2}, {2, 1}}, owner, 0, std::move(columns)}}};
}

DataFingerprint of(const TensorSource& source) { return fingerprint(source, source); }

TEST(Fingerprint, TellsValuesOrderSizeAndColumnsApart) {
  const DataFingerprint whole = of(table(counted(40)));
  EXPECT_EQ(difference(whole, of(table(counted(40)))), "");
  auto other = counted(40);
  other[17] += 1;
  EXPECT_THAT(difference(whole, of(table(other))),
              HasSubstr("its training samples: expected 20 samples (content "));
  other = counted(40);
  std::swap(other[2], other[4]);
  std::swap(other[3], other[5]);
  EXPECT_NE(difference(whole, of(table(other))), "") << "rows in another order";
  EXPECT_THAT(difference(whole, of(table(counted(38)))), HasSubstr("got 19 samples"));
  EXPECT_THAT(difference(whole, of(table(counted(40), {"b", "a"}))),
              HasSubstr("expected x float32 [2] (a, b), got x float32 [2] (b, a)"));
}

TEST(Fingerprint, OfTablesThatLackValuesKnowsTheOthers) {
  const auto lacking = [](float other, std::vector<float> fill) {
    const auto owner = std::make_shared<std::vector<float>>(
        std::vector<float>{1, std::numeric_limits<float>::quiet_NaN(), other, 4});
    return TensorSource("table", {{.name = "x",
                                   .view = {owner->data(), DType::f32, {2, 2}, {2, 1}},
                                   .owner = owner,
                                   .fill = std::move(fill)}});
  };
  EXPECT_EQ(difference(of(lacking(3, {0, 0})), of(lacking(3, {0, 0}))), "");
  EXPECT_NE(difference(of(lacking(3, {0, 0})), of(lacking(5, {0, 0}))), "");
  EXPECT_EQ(difference(of(lacking(3, {})), of(lacking(5, {}))), "") << "what is not finite may be corrected";
}

TEST(Fingerprint, OfTheSamplesInFrontIsThatOfThoseAlone) {
  const auto longer = table(counted(400));
  EXPECT_EQ(fingerprint(longer, 150), fingerprint(table(counted(300)), 150));
  EXPECT_NE(fingerprint(longer, 150).content, fingerprint(longer, 151).content);
}

/// A source of which every read counts, as from a disk.
class OnDisk final : public Source {
 public:
  explicit OnDisk(const Source& source) : source_(source) {}
  std::string name() const override { return source_.name(); }
  std::int64_t size() const noexcept override { return source_.size(); }
  std::span<const Field> fields() const noexcept override { return source_.fields(); }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    ++reads_;
    source_.read(index, outputs, generator);
  }
  std::int64_t reads() const { return reads_; }

 private:
  const Source& source_;
  mutable std::int64_t reads_ = 0;
};

constexpr std::size_t kManyRows = 2 << 20;  // 32 MiB of samples in memory: 16 bytes each

TEST(Fingerprint, OfManySamplesItLooksAtSomeAndTheLast) {
  auto values = counted(2 * kManyRows);
  const auto before = table(values);
  values.back() = -1;
  const auto after = table(values);
  const OnDisk source(before);
  const SplitFingerprint found = fingerprint(source, source.size());
  EXPECT_LE(source.reads(), (4 << 20) / 16);
  EXPECT_EQ(found.more, "");
  EXPECT_NE(found.content, fingerprint(OnDisk(after), after.size()).content);
}

TEST(Fingerprint, OfManySamplesInMemoryItLooksAtAll) {
  auto values = counted(2 * kManyRows);
  const DataFingerprint before = of(table(values));
  EXPECT_EQ(from_entries(to_entries(before)), before);
  for (const std::size_t place : {kManyRows + 1, kManyRows + 3, 2 * kManyRows - 3}) {
    const float old = std::exchange(values[place], -1.0F);
    EXPECT_THAT(difference(before, of(table(values))), HasSubstr("its training samples: expected")) << place;
    values[place] = std::numeric_limits<float>::infinity();
    EXPECT_THAT(difference(before, of(table(values))), HasSubstr("content not finite")) << place;
    values[place] = old;
  }
  EXPECT_EQ(difference(before, of(table(values))), "");
}

TEST(Fingerprint, OfAnOlderVersionHasNoMoreThanSomeSamples) {
  auto values = counted(2 * kManyRows);
  auto entries = to_entries(of(table(values)));
  ASSERT_EQ(entries.erase("data-train-more") + entries.erase("data-test-more"), 2U);
  const DataFingerprint then = from_entries(entries).value();
  EXPECT_EQ(difference(then, of(table(values))), "");
  values.back() = -1;
  EXPECT_NE(difference(then, of(table(values))), "");
}

TEST(Fingerprint, DataThatAreNotFiniteMayBeCorrected) {
  auto values = counted(40);
  values[17] = std::numeric_limits<float>::quiet_NaN();
  const DataFingerprint bad = of(table(values)), good = of(table(counted(40)));
  EXPECT_EQ(difference(bad, good), "");
  EXPECT_EQ(from_entries(to_entries(bad)), bad);
  EXPECT_THAT(difference(good, bad), HasSubstr("got 20 samples (content not finite)"));
  EXPECT_NE(difference(bad, of(table(counted(38)))), "") << "but neither fewer nor more";
}

/// Four labels of two classes.
TensorSource labels(std::vector<std::string> names) {
  const auto owner = std::make_shared<std::vector<std::int64_t>>(std::vector<std::int64_t>{0, 1, 1, 0});
  return {"labels",
          {{.name = "label",
            .view = {owner->data(), DType::i64, {4}, {1}},
            .owner = owner,
            .values = 2,
            .value_names = std::move(names)}}};
}

TEST(Fingerprint, KnowsWhatClassesAreCalled) {
  const DataFingerprint then = of(labels({"cat", "dog"}));
  EXPECT_EQ(from_entries(to_entries(then)), then);
  EXPECT_EQ(difference(then, of(labels({"cat", "dog"}))), "");
  EXPECT_THAT(difference(then, of(labels({"ant", "cat"}))),
              HasSubstr("expected label 0 is cat, got label 0 is ant"));
  EXPECT_EQ(difference(then, of(labels({"0", "1"}))), "") << "numbers are no names";
  EXPECT_EQ(difference(then, of(labels({}))), "");
  EXPECT_TRUE(are_renumbered(then.names, of(labels({"dog", "cat"})).names));
  EXPECT_FALSE(are_renumbered(then.names, of(labels({"ant", "cat"})).names));
  EXPECT_FALSE(are_renumbered(then.names, then.names));

  auto older = to_entries(then);
  ASSERT_EQ(older.erase("data-names"), 1U);
  EXPECT_EQ(difference(from_entries(older).value(), of(labels({"ant", "cat"}))), "");
  const DataFingerprint odd = of(labels({"a\nb", "\xff"}));
  EXPECT_EQ(from_entries(to_entries(odd)), odd);
}

TEST(Fingerprint, ComesBackFromACheckpointsEntries) {
  const DataFingerprint data = of(table(counted(8), {"größe", "a, b"}));
  auto entries = to_entries(data);
  entries["model"] = "mlp";
  EXPECT_EQ(from_entries(entries), data);
  EXPECT_EQ(from_entries({{"model", "mlp"}}), std::nullopt);
}

}  // namespace
}  // namespace dtrain
