// The seam between sources and loader: fields of any kind, generators that depend on the key alone, and one
// clear error for each thing a source may do wrong.
#include "runtime/data/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "tests/support/message_of.h"
#include "tests/unit/data/fake_device.h"

namespace dtrain {
namespace {

using namespace std::chrono_literals;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Read = std::function<void(std::int64_t, std::span<const View>, KeyedGenerator&)>;

/// Whatever a test says.
class MadeSource final : public Source {
 public:
  MadeSource(std::vector<Field> fields, Read read) : fields_(std::move(fields)), read_(std::move(read)) {}
  std::string name() const override { return "made"; }
  std::int64_t size() const noexcept override { return 40; }
  std::span<const Field> fields() const noexcept override { return changed_ ? other_ : fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    if (read_) read_(index, outputs, generator);
  }
  void change_to(std::vector<Field> fields) {
    other_ = std::move(fields);
    changed_ = true;
  }

 private:
  std::vector<Field> fields_, other_;
  Read read_;
  std::atomic<bool> changed_ = false;
};

std::unique_ptr<Loader> load(std::shared_ptr<const Source> source, LoaderOptions options = {}) {
  return std::make_unique<Loader>(std::move(source), std::make_shared<test::PinnedOnlyDevice>(), options);
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::optional<Batch> next(Loader& loader) { return loader.next(Deadline::after(20s)); }

const std::vector<Field> kLabel = {{.name = "label", .dtype = DType::i64, .shape = {}, .values = 10}};

TEST(Source, FieldsMayBeOfAnyTypeAndShape) {
  const std::vector<Field> fields = {{.name = "mask", .dtype = DType::u8, .shape = {2, 3}},
                                     {.name = "tokens", .dtype = DType::i32, .shape = {5}, .values = 50257},
                                     {.name = "y", .dtype = DType::f64, .shape = {}},
                                     {.name = "video", .dtype = DType::bf16, .shape = {2, 3, 2, 2}}};
  EXPECT_EQ(describe(fields),
            "mask uint8 [2, 3], tokens int32 [5], y float64 [], video bfloat16 [2, 3, 2, 2]");
  const auto source =
      std::make_shared<MadeSource>(fields, [](std::int64_t index, std::span<const View> outputs, auto&) {
        ASSERT_EQ(outputs.size(), 4U);
        for (int i = 0; i < 6; ++i) outputs[0].as<std::uint8_t>()[i] = static_cast<std::uint8_t>(index + i);
        for (int i = 0; i < 5; ++i)
          outputs[1].as<std::int32_t>()[i] = static_cast<std::int32_t>(index * 10 + i);
        *outputs[2].as<double>() = static_cast<double>(index) / 3;
        for (int i = 0; i < 24; ++i) outputs[3].as<BFloat16>()[i] = BFloat16(static_cast<float>(i));
      });
  const auto loader = load(source, {.batch_size = 3, .threads = 2});
  loader->start(numbers(40), 0);
  std::int64_t index = 0;
  while (const auto batch = next(*loader)) {
    const std::int64_t count = batch->size();
    EXPECT_EQ((*batch)["mask"].shape, (Dims{count, 2, 3}));
    EXPECT_EQ((*batch)["tokens"].shape, (Dims{count, 5}));
    EXPECT_EQ((*batch)["y"].shape, (Dims{count}));
    EXPECT_EQ((*batch)["video"].shape, (Dims{count, 2, 3, 2, 2}));
    for (const View& view : batch->views()) EXPECT_TRUE(view.is_contiguous());
    for (std::int64_t i = 0; i < count; ++i, ++index) {
      EXPECT_EQ((*batch)["mask"].as<std::uint8_t>()[i * 6 + 5], index + 5);
      EXPECT_EQ((*batch)["tokens"].as<std::int32_t>()[i * 5 + 4], index * 10 + 4);
      EXPECT_EQ((*batch)["y"].as<double>()[i], static_cast<double>(index) / 3);
      EXPECT_EQ(static_cast<float>((*batch)["video"].as<BFloat16>()[i * 24 + 23]), 23.0F);
    }
  }
  EXPECT_EQ(index, 40);
}

TEST(Source, UnknownFieldIsRefusedWithTheKnownOnes) {
  const auto loader = load(std::make_shared<MadeSource>(
      kLabel, [](auto, auto outputs, auto&) { *outputs[0].template as<std::int64_t>() = 1; }));
  loader->start({0}, 0);
  const Batch batch = next(*loader).value();
  EXPECT_THAT(message_of([&] { batch["image"]; }),
              AllOf(HasSubstr("label int64 []"), HasSubstr("\"image\"")));
  EXPECT_THROW(Batch()["label"], UsageError);
}

/// What 40 samples draw in an epoch, read by so many threads in batches of such a size, in that order.
std::map<std::int64_t, std::uint64_t> draws(int threads, std::int64_t batch_size,
                                            std::vector<std::int64_t> order, std::int64_t epoch,
                                            std::uint64_t seed) {
  const auto source = std::make_shared<MadeSource>(
      std::vector<Field>{{.name = "draw", .dtype = DType::i64}},
      [](std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) {
        for (std::int64_t i = 0; i < index % 3; ++i) generator.next32();  // some take more than others
        *outputs[0].as<std::int64_t>() = static_cast<std::int64_t>(generator.next64());
      });
  const auto loader = load(source, {.batch_size = batch_size, .threads = threads, .seed = seed});
  loader->start(std::move(order), epoch);
  std::map<std::int64_t, std::uint64_t> seen;
  while (const auto batch = next(*loader)) {
    for (std::int64_t i = 0; i < batch->size(); ++i)
      seen[batch->indices[static_cast<std::size_t>(i)]] = (*batch)["draw"].as<std::uint64_t>()[i];
  }
  return seen;
}

TEST(Source, RandomnessDependsOnSeedEpochAndIndexAlone) {
  const auto expected = draws(0, 1, numbers(40), 3, 7);
  EXPECT_EQ(expected.size(), 40U);
  auto backwards = numbers(40);
  std::reverse(backwards.begin(), backwards.end());
  for (const int threads : {0, 1, 4}) {
    EXPECT_EQ(draws(threads, 7, numbers(40), 3, 7), expected);
    EXPECT_EQ(draws(threads, 3, backwards, 3, 7), expected);
  }
  for (const auto& [index, draw] : draws(0, 1, numbers(40), 4, 7)) EXPECT_NE(draw, expected.at(index));
  for (const auto& [index, draw] : draws(0, 1, numbers(40), 3, 8)) EXPECT_NE(draw, expected.at(index));
  KeyedGenerator generator(7, 3, 6);
  EXPECT_EQ(expected.at(6), generator.next64());
}

TEST(Source, MalformedFieldsAreRefusedAtOnce) {
  const std::pair<std::vector<Field>, const char*> cases[] = {
      {{}, "at least one field"},
      {{{.name = ""}}, "field 0"},
      {{{.name = "x"}, {.name = "x"}}, "another field has"},
      {{{.name = "x", .shape = {3, 0}}}, "[3, 0]"},
      {{{.name = "x", .shape = Dims::filled(8, 1)}}, "at most 7 dimensions"},
      {{{.name = "x", .dtype = DType::f32, .shape = {}, .values = 3}}, "float32"},
      {{{.name = "x", .dtype = DType::i64, .shape = {}, .values = -3}}, "-3"},
  };
  for (const auto& [fields, part] : cases) {
    const auto source = std::make_shared<MadeSource>(fields, Read());
    EXPECT_THAT(message_of([&] { load(source); }), AllOf(HasSubstr("made: "), HasSubstr(part)));
  }
}

TEST(Source, OnlyImagesLieChannelsLast) {
  const auto source = std::make_shared<MadeSource>(kLabel, Read());
  EXPECT_THAT(message_of([&] { load(source, {.channels_last = {"label"}}); }),
              AllOf(HasSubstr("[C, H, W]"), HasSubstr("\"label\"")));
  EXPECT_THROW(load(source, {.channels_last = {"image"}}), UsageError);
}

TEST(Source, ABatchThatNoMemoryHoldsIsRefused) {
  const auto huge = std::make_shared<MadeSource>(
      std::vector<Field>{{.name = "x", .shape = Dims::filled(7, 1 << 20)}}, Read());
  EXPECT_THAT(message_of([&] { load(huge); }), HasSubstr("fits in memory"));
}

/// The message of an error of exactly class E that reading sample 5, in the second batch of four, ends in.
template <class E>
std::string failure(int threads, const std::shared_ptr<const Source>& source) {
  const auto loader = load(source, {.batch_size = 4, .threads = threads});
  loader->start(numbers(8), 0);
  EXPECT_EQ(next(*loader)->number, 0);
  try {
    next(*loader);
  } catch (const Error& error) {
    EXPECT_EQ(typeid(error), typeid(E));
    return error.what();
  }
  return "nothing was thrown";
}

Read at_five(std::function<void(std::span<const View>)> act) {
  return [act = std::move(act)](std::int64_t index, std::span<const View> outputs, KeyedGenerator&) {
    *outputs[0].as<std::int64_t>() = 1;
    if (index == 5) act(outputs);
  };
}

TEST(Source, WhatReadingThrowsNamesSourceAndSample) {
  for (const int threads : {0, 2}) {
    const auto made = [](Read read) { return std::make_shared<MadeSource>(kLabel, std::move(read)); };
    EXPECT_THAT(
        failure<DataError>(threads, made(at_five([](auto) { throw DataError("/disk", 7, "a", "b"); }))),
        AllOf(HasSubstr("made: sample 5: "), HasSubstr("/disk")));
    EXPECT_THAT(
        failure<SystemError>(threads, made(at_five([](auto) { throw SystemError("read /disk", 5); }))),
        AllOf(HasSubstr("made: sample 5: "), HasSubstr("read /disk")));
    EXPECT_THAT(failure<Error>(threads, made(at_five([](auto) { throw std::out_of_range("vector"); }))),
                HasSubstr("made: sample 5: vector"));
  }
}

TEST(Source, ValuesOutOfRangeAreRefused) {
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{10}, INT64_MAX, INT64_MIN}) {
    const auto source = std::make_shared<MadeSource>(
        kLabel, at_five([bad](auto outputs) { *outputs[0].template as<std::int64_t>() = bad; }));
    EXPECT_THAT(failure<Error>(1, source), AllOf(HasSubstr("made: sample 5: "), HasSubstr("field label"),
                                                 HasSubstr("0 to 9"), HasSubstr(std::to_string(bad))));
  }
  const auto tokens = [](std::int32_t bad) {
    return std::make_shared<MadeSource>(
        std::vector<Field>{{.name = "tokens", .dtype = DType::i32, .shape = {100}, .values = 1000}},
        [bad](std::int64_t index, std::span<const View> outputs, KeyedGenerator&) {
          std::fill_n(outputs[0].as<std::int32_t>(), 100, 999);
          if (index == 5) outputs[0].as<std::int32_t>()[99] = bad;
        });
  };
  for (const std::int32_t bad : {-1, 1000, INT32_MIN})
    EXPECT_THAT(failure<Error>(0, tokens(bad)), HasSubstr("got " + std::to_string(bad)));
  const auto mask = std::make_shared<MadeSource>(
      std::vector<Field>{{.name = "mask", .dtype = DType::u8, .shape = {4}, .values = 21}},
      [](std::int64_t index, std::span<const View> outputs, KeyedGenerator&) {
        std::fill_n(outputs[0].as<std::uint8_t>(), 4, index == 5 ? std::uint8_t{21} : std::uint8_t{20});
      });
  EXPECT_THAT(failure<Error>(0, mask), HasSubstr("field mask to hold integers from 0 to 20, got 21"));
}

TEST(Source, FieldsMayNotChangeOnTheWay) {
  for (const std::vector<Field>& other :
       {std::vector<Field>{{.name = "label", .dtype = DType::i64, .shape = {2}, .values = 10}},
        std::vector<Field>{kLabel[0], {.name = "y"}}, std::vector<Field>{}}) {
    const auto source = std::make_shared<MadeSource>(kLabel, at_five([](auto) {}));
    const auto loader = load(source, {.batch_size = 4});
    loader->start(numbers(8), 0);
    next(*loader);
    source->change_to(other);
    EXPECT_THAT(message_of([&] { next(*loader); }),
                AllOf(HasSubstr("made: sample 4: "), HasSubstr("the same fields"),
                      HasSubstr(other.empty() ? "got none" : "got " + other.back().to_string())));
  }
}

}  // namespace
}  // namespace dtrain
