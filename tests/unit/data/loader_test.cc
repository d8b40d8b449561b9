// The loader's promise: what it delivers is a function of the order alone, whatever its threads do.
#include "runtime/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/support/message_of.h"
#include "tests/unit/data/fake_device.h"

namespace dtrain {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Three channels of 2 × 2 whose values say index, channel and pixel; `hook` can delay or throw.
class TinySource final : public Source {
 public:
  explicit TinySource(std::int64_t size, std::function<void(std::int64_t)> hook = {})
      : size_(size), hook_(std::move(hook)) {}
  std::string name() const override { return "tiny"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    if (hook_) hook_(index);
    const Dims& s = outputs[0].strides;
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t p = 0; p < 4; ++p)
        outputs[0].as<float>()[c * s[0] + p / 2 * s[1] + p % 2 * s[2]] = value(index, c, p);
    }
    *outputs[1].as<std::int64_t>() = index % 10;
  }
  static float value(std::int64_t index, std::int64_t channel, std::int64_t pixel) {
    return static_cast<float>(index * 100 + channel * 10 + pixel);
  }

 private:
  std::int64_t size_;
  std::function<void(std::int64_t)> hook_;
  std::vector<Field> fields_{{.name = "image", .shape = {3, 2, 2}},
                             {.name = "label", .dtype = DType::i64, .shape = {}, .values = 10}};
};

std::vector<std::int64_t> shuffled(std::int64_t n) { return Generator(7).permutation(n); }

struct Fixture {
  std::shared_ptr<test::PinnedOnlyDevice> device = std::make_shared<test::PinnedOnlyDevice>();
  std::shared_ptr<const Source> source;
  Loader loader;

  Fixture(std::int64_t size, const LoaderOptions& options, std::function<void(std::int64_t)> hook = {})
      : source(std::make_shared<TinySource>(size, std::move(hook))), loader(source, device, options) {}
  std::optional<Batch> next() { return loader.next(Deadline::after(20s)); }
};

// Checks one batch in full against the order it came from, through its strides.
void expect_batch(const Batch& batch, const std::vector<std::int64_t>& order, std::int64_t batch_size) {
  const std::int64_t first = batch.number * batch_size;
  const std::int64_t count =
      std::min<std::int64_t>(batch_size, static_cast<std::int64_t>(order.size()) - first);
  ASSERT_EQ(batch.size(), count);
  const View &images = batch["image"], &labels = batch["label"];
  ASSERT_EQ(images.shape, (Dims{count, 3, 2, 2}));
  ASSERT_EQ(labels.shape, (Dims{count}));
  ASSERT_EQ(labels.dtype, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = order[static_cast<std::size_t>(first + i)];
    ASSERT_EQ(batch.indices[static_cast<std::size_t>(i)], index);
    ASSERT_EQ(labels.as<std::int64_t>()[i], index % 10);
    const Dims& s = images.strides;
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t p = 0; p < 4; ++p) {
        const float got = images.as<float>()[i * s[0] + c * s[1] + p / 2 * s[2] + p % 2 * s[3]];
        ASSERT_EQ(got, TinySource::value(index, c, p));
      }
    }
  }
}

void nap_at_random(std::int64_t) {
  thread_local std::minstd_rand random(
      static_cast<unsigned>(std::hash<std::thread::id>{}(std::this_thread::get_id())));
  if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

class LoaderOrder : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(LoaderOrder, DependsOnNothingButTheOrder) {
  const auto [threads, prefetch] = GetParam();
  LoaderOptions options{.batch_size = 8, .threads = threads, .prefetch = prefetch};
  Fixture f(203, options, nap_at_random);
  const auto order = shuffled(203);
  for (int epoch = 0; epoch < 2; ++epoch) {
    f.loader.start(order, 0);
    ASSERT_EQ(f.loader.batches(), 26);
    for (std::int64_t k = 0; k < 26; ++k) {
      ASSERT_EQ(f.loader.position(), k);
      const auto batch = f.next();
      ASSERT_TRUE(batch.has_value());
      ASSERT_EQ(batch->number, k);
      ASSERT_NO_FATAL_FAILURE(expect_batch(*batch, order, 8));
    }
    EXPECT_FALSE(f.next().has_value());
    EXPECT_FALSE(f.next().has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderOrder,
                         ::testing::Combine(::testing::Values(0, 1, 2, 5), ::testing::Values(1, 2, 3, 40)));

TEST(Loader, ResumesAtAnyBatchWithoutDecodingWhatWasDone) {
  const auto order = shuffled(50);
  for (const int threads : {0, 3}) {
    for (std::int64_t first = 0; first <= 13; ++first) {
      std::atomic<std::int64_t> decoded = 0;
      Fixture f(50, {.batch_size = 4, .threads = threads}, [&](std::int64_t) { ++decoded; });
      f.loader.start(order, 0, first);
      for (std::int64_t k = first; k < 13; ++k) {
        const auto batch = f.next();
        ASSERT_TRUE(batch.has_value());
        ASSERT_EQ(batch->number, k);
        ASSERT_NO_FATAL_FAILURE(expect_batch(*batch, order, 4));
      }
      EXPECT_FALSE(f.next().has_value());
      EXPECT_EQ(decoded, 50 - std::min<std::int64_t>(50, first * 4));
    }
  }
}

TEST(Loader, DropsTheLastPartialBatchWhenAsked) {
  const auto order = shuffled(50);
  for (const int threads : {0, 2}) {
    Fixture f(50, {.batch_size = 8, .threads = threads, .drop_last = true});
    f.loader.start(order, 0);
    EXPECT_EQ(f.loader.batches(), 6);
    for (int k = 0; k < 6; ++k) EXPECT_EQ(f.next()->size(), 8);
    EXPECT_FALSE(f.next().has_value());
    f.loader.start({1, 2, 3}, 0);
    EXPECT_FALSE(f.next().has_value());
  }
}

TEST(Loader, CutsBatchesWhereAsked) {
  for (const int threads : {0, 2}) {
    Fixture f(50, {.batch_size = 4, .threads = threads});
    const auto order = shuffled(50);
    const std::vector<std::int64_t> some(order.begin(), order.begin() + 10);
    f.loader.start(some, {4, 5, 8, 10}, 0);
    EXPECT_EQ(f.loader.batches(), 4);
    std::vector<std::int64_t> seen, sizes;
    while (const auto batch = f.next()) {
      seen.insert(seen.end(), batch->indices.begin(), batch->indices.end());
      sizes.push_back(batch->size());
    }
    EXPECT_EQ(seen, some);
    EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 1, 3, 2}));
    EXPECT_THROW(f.loader.start(some, {5, 10}, 0), UsageError) << "more than a batch";
    EXPECT_THROW(f.loader.start(some, {4, 4, 8, 10}, 0), UsageError) << "an empty one";
    EXPECT_THROW(f.loader.start(some, {4, 8}, 0), UsageError) << "not to the end";
  }
}

TEST(Loader, LaysChannelsOutAsAsked) {
  const auto order = shuffled(10);
  for (const bool last : {false, true}) {
    Fixture f(10, {.batch_size = 4,
                   .threads = 1,
                   .channels_last = last ? std::vector<std::string>{"image"} : std::vector<std::string>{}});
    f.loader.start(order, 0);
    while (const auto batch = f.next()) {
      EXPECT_EQ((*batch)["image"].is_contiguous(), !last);
      EXPECT_EQ((*batch)["image"].is_channels_last(), last);
      ASSERT_NO_FATAL_FAILURE(expect_batch(*batch, order, 4));
    }
  }
}

// Sample i has i % 7 rows of two numbers i, and as many tags; what read() leaves out holds garbage.
class UnevenSource final : public Source {
 public:
  explicit UnevenSource(std::int64_t too_long = -1) : too_long_(too_long) {}
  std::string name() const override { return "uneven"; }
  std::int64_t size() const noexcept override { return 20; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    const std::int64_t length = index == too_long_ ? 9 : index % 7;
    std::memset(outputs[0].data, 0x7f, 8 * 2 * sizeof(float));
    std::memset(outputs[2].data, 0x7f, 8);
    std::fill_n(outputs[0].as<float>(), std::min<std::int64_t>(2 * length, 16), static_cast<float>(index));
    *outputs[1].as<std::int64_t>() = length;
    std::fill_n(outputs[2].as<std::uint8_t>(), std::min<std::int64_t>(length, 8), 1);
  }

  std::vector<Field> fields_{{.name = "x", .shape = {8, 2}, .length_field = "length", .padding_value = -0.5},
                             {.name = "length", .dtype = DType::i64, .shape = {}},
                             {.name = "tags",
                              .dtype = DType::u8,
                              .shape = {8},
                              .values = 5,
                              .length_field = "length",
                              .padding_value = 4}};

 private:
  std::int64_t too_long_;
};

void expect_padded(const Batch& batch, std::int64_t rows) {
  const View &x = batch["x"], &tags = batch["tags"];
  ASSERT_EQ(x.shape, (Dims{batch.size(), rows, 2}));
  ASSERT_EQ(tags.shape, (Dims{batch.size(), rows}));
  ASSERT_TRUE(x.is_contiguous());
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const std::int64_t index = batch.indices[static_cast<std::size_t>(i)];
    ASSERT_EQ(batch["length"].as<std::int64_t>()[i], index % 7);
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool own = row < index % 7;
      for (int k = 0; k < 2; ++k)
        ASSERT_EQ(x.as<float>()[(i * rows + row) * 2 + k], own ? static_cast<float>(index) : -0.5F) << index;
      ASSERT_EQ(tags.as<std::uint8_t>()[i * rows + row], own ? 1 : 4) << index;
    }
  }
}

TEST(Loader, PadsSamplesToTheLongestOfTheirBatch) {
  const auto device = std::make_shared<test::PinnedOnlyDevice>();
  for (const int threads : {0, 3}) {
    for (const bool most : {false, true}) {
      Loader loader(std::make_shared<UnevenSource>(), device,
                    {.batch_size = 3, .threads = threads, .pad_to_most = most});
      for (int epoch = 0; epoch < 2; ++epoch) {  // the second in memory that was used before
        loader.start({1, 0, 2, 7, 14, 0, 6, 3, 5, 13}, epoch);
        for (const std::int64_t longest : {2, 1, 6, 6}) {
          const auto batch = loader.next(Deadline::after(20s));
          ASSERT_TRUE(batch.has_value());
          expect_padded(*batch, most ? 8 : longest);
        }
      }
    }
  }
}

TEST(Loader, RefusesLengthsThatSamplesCannotHave) {
  const auto device = std::make_shared<test::PinnedOnlyDevice>();
  Loader loader(std::make_shared<UnevenSource>(4), device, {.batch_size = 2});
  loader.start({3, 4}, 0);
  EXPECT_THAT(
      test::message_of([&] { loader.next(Deadline::after(20s)); }),
      HasSubstr("uneven: sample 4: expected field length from 0 to 8, the most rows of field x, got 9"));
  const auto refused = [&](auto change, const std::string& why) {
    const auto source = std::make_shared<UnevenSource>();
    change(source->fields_);
    EXPECT_THAT(test::message_of([&] { Loader(source, device, {}); }), HasSubstr(why));
  };
  refused([](auto& fields) { fields[0].length_field = "size"; },
          "expected a field size (int64 []) for its length");
  refused([](auto& fields) { fields[1].dtype = DType::i32; }, "expected a field length (int64 [])");
  refused([](auto& fields) { fields[1].length_field = "length"; }, "expected a first extent");
  refused([](auto& fields) { fields[2].padding_value = 5; },
          "expected a padding value among its values, got 5");
  refused([](auto& fields) { fields[2].padding_value = 0.5; },
          "expected a padding value among its values, got 0.5");
  for (const double value : {-1.0, 256.0, double{INFINITY}, double{NAN}}) {
    refused(
        [value](auto& fields) {
          fields[2].values = 0;
          fields[2].padding_value = value;
        },
        "expected a padding value among its values");
  }
}

TEST(Loader, TakesNoMemoryInSteadyState) {
  for (const int threads : {0, 2}) {
    Fixture f(400, {.batch_size = 4, .threads = threads, .prefetch = 3});
    std::optional<Batch> held;
    int early = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      f.loader.start(shuffled(400), epoch);
      for (int k = 0; k < 100; ++k) {
        held = f.next();
        if (epoch == 0 && k == 10) early = f.device->allocations;
      }
    }
    EXPECT_LE(early, threads == 0 ? 2 : 3 + 2);
    // An epoch's start may find one thread still busy with nothing; it may not cost more than its piece.
    EXPECT_LE(f.device->allocations, early + 1);
  }
}

TEST(Loader, BatchesKeptByTheUserStayIntactAndNeverStarveThreads) {
  const auto order = shuffled(120);
  auto device = std::make_shared<test::PinnedOnlyDevice>();
  std::vector<Batch> kept;
  {
    Loader loader(std::make_shared<TinySource>(120), device, {.batch_size = 4, .threads = 2, .prefetch = 2});
    loader.start(order, 0);
    while (auto batch = loader.next(Deadline::after(20s))) kept.push_back(*batch);
  }
  ASSERT_EQ(kept.size(), 30U);
  for (const Batch& batch : kept) ASSERT_NO_FATAL_FAILURE(expect_batch(batch, order, 4));
  EXPECT_GT(device->live, 29);
  kept.clear();
  EXPECT_EQ(device->live, 0) << "the last batch takes the pool with it";
}

TEST(Loader, RestartsInTheMiddleOfAnEpoch) {
  Fixture f(64, {.batch_size = 4, .threads = 3, .prefetch = 4}, nap_at_random);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int64_t> order(64, round);  // every sample says which order it belongs to
    f.loader.start(order, 0);
    for (int k = 0; k < round % 5; ++k) {
      const auto batch = f.next();
      ASSERT_TRUE(batch.has_value());
      ASSERT_NO_FATAL_FAILURE(expect_batch(*batch, order, 4));
    }
  }
}

TEST(Loader, FailureComesUpAtItsBatchAndStays) {
  for (const int threads : {0, 1, 4}) {
    Fixture f(40, {.batch_size = 4, .threads = threads, .prefetch = 3}, [](std::int64_t index) {
      nap_at_random(index);
      if (index == 22) throw DataError("disk", 22, "a sample", "nothing");
    });
    std::vector<std::int64_t> order(40);
    std::iota(order.begin(), order.end(), 0);
    f.loader.start(order, 0);
    for (int k = 0; k < 5; ++k) ASSERT_NO_FATAL_FAILURE(expect_batch(*f.next(), order, 4));
    EXPECT_THROW(f.next(), DataError) << threads;
    EXPECT_THROW(f.next(), DataError) << threads;
    EXPECT_EQ(f.loader.position(), 5);
    f.loader.start(order, 0, 6);  // and a new start is a new start
    for (int k = 6; k < 10; ++k) ASSERT_NO_FATAL_FAILURE(expect_batch(*f.next(), order, 4));
    EXPECT_FALSE(f.next().has_value());
  }
}

TEST(Loader, DeadlinePassesWithoutLosingTheBatch) {
  std::atomic<bool> open = false;
  Fixture f(8, {.batch_size = 4, .threads = 1}, [&](std::int64_t) {
    while (!open) std::this_thread::sleep_for(1ms);
  });
  f.loader.start({0, 1, 2, 3, 4, 5, 6, 7}, 0);
  try {
    f.loader.next(Deadline::after(10ms));
    ADD_FAILURE() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("batch 0 of 2 from tiny"));
  }
  open = true;
  EXPECT_EQ(f.next()->number, 0);
  EXPECT_EQ(f.next()->number, 1);
}

TEST(Loader, EndsPromptlyWhileThreadsAreBusy) {
  const auto before = std::chrono::steady_clock::now();
  {
    // Undisturbed, one batch would take 1000 × 5 ms.
    Fixture f(4000, {.batch_size = 1000, .threads = 3},
              [](std::int64_t) { std::this_thread::sleep_for(5ms); });
    f.loader.start(shuffled(4000), 0);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, 2s);
}

TEST(Loader, EndsWithoutEverBeingStarted) { Fixture f(10, {.batch_size = 2, .threads = 4}); }

TEST(Loader, MemoryFailureSurfacesInTheUsersCalls) {
  Fixture f(100, {.batch_size = 4, .threads = 2, .prefetch = 2});
  f.device->limit = 1;
  EXPECT_THROW(f.loader.start(shuffled(100), 0), DeviceError);
  f.device->limit = 2;
  f.loader.start(shuffled(100), 0);
  EXPECT_THROW(
      {
        std::vector<Batch> kept;
        while (auto batch = f.next()) kept.push_back(*batch);
      },
      DeviceError);
}

TEST(Loader, RefusesWrongOptionsAndIndices) {
  EXPECT_THROW(Fixture(10, {.batch_size = 0}), UsageError);
  EXPECT_THROW(Fixture(10, {.batch_size = 1, .threads = -1}), UsageError);
  EXPECT_THROW(Fixture(10, {.batch_size = 1, .prefetch = 0}), UsageError);
  EXPECT_THROW(Fixture(10, {.batch_size = std::int64_t{1} << 60}), UsageError);
  Fixture f(10, {.batch_size = 4});
  EXPECT_FALSE(f.next().has_value());
  EXPECT_THROW(f.loader.start({0, 10}, 0), UsageError);
  EXPECT_THROW(f.loader.start({0, -1}, 0), UsageError);
  EXPECT_THROW(f.loader.start({0, 1, 2, 3, 4}, 0, 3), UsageError);
  EXPECT_THROW(f.loader.start({0, 1, 2, 3, 4}, 0, -1), UsageError);
  EXPECT_THROW(f.loader.start({0}, -1), UsageError);
}

}  // namespace
}  // namespace dtrain
