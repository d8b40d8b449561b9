// The bucket rule and the reducer's order, averaging, unused gradients and accumulation, with a fake
// communicator.
#include "parallel/sync/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/unit/collectives/fake_communicator.h"

namespace dtrain {
namespace {

using test::FakeCommunicator;
using testing::ElementsAre;

constexpr std::size_t kMiB = 1U << 20;
const Deadline kNever = Deadline::never();

GradientSlot slot(std::string name, std::size_t count, DType dtype = DType::f32) {
  return {std::move(name), count, dtype};
}

TEST(Buckets, FirstIsSmallThenCapped) {
  // In MiB, in reverse order: 0.5, 0.5 | 10, 15 | 30 | 1
  const std::vector<GradientSlot> slots = {slot("f", kMiB / 4),      slot("e", 30 * kMiB / 4),
                                           slot("d", 15 * kMiB / 4), slot("c", 10 * kMiB / 4),
                                           slot("b", kMiB / 8),      slot("a", kMiB / 8)};
  const auto buckets = lay_out_buckets(slots, reverse_order(slots.size()), {});
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_THAT(buckets[0].slots, ElementsAre(5, 4));
  EXPECT_THAT(buckets[1].slots, ElementsAre(3, 2));
  EXPECT_THAT(buckets[2].slots, ElementsAre(1));
  EXPECT_THAT(buckets[3].slots, ElementsAre(0));
}

TEST(Buckets, JustBelowTheLimitStaysOpen) {
  const std::vector<GradientSlot> slots = {slot("b", 1), slot("a", kMiB / 4 - 1)};
  EXPECT_EQ(lay_out_buckets(slots, reverse_order(2), {}).size(), 1U);
  const std::vector<GradientSlot> full = {slot("b", 1), slot("a", kMiB / 4)};
  EXPECT_EQ(lay_out_buckets(full, reverse_order(2), {}).size(), 2U);
}

TEST(Buckets, KeepDtypesApartAndAligned) {
  const std::vector<GradientSlot> slots = {slot("a", 3), slot("b", 5, DType::bf16), slot("c", 7),
                                           slot("d", 9, DType::bf16)};
  const auto buckets = lay_out_buckets(slots, std::vector<std::size_t>{0, 1, 2, 3}, {});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_THAT(buckets[0].slots, ElementsAre(0, 2));
  EXPECT_THAT(buckets[0].offsets, ElementsAre(0, 16));
  EXPECT_EQ(buckets[0].count, 32U);
  EXPECT_THAT(buckets[1].slots, ElementsAre(1, 3));
  EXPECT_THAT(buckets[1].offsets, ElementsAre(0, 32));
  EXPECT_EQ(buckets[1].dtype, DType::bf16);
}

TEST(Buckets, EveryGradientOnceWhateverTheSizes) {
  for (std::size_t count = 0; count < 40; ++count) {
    std::vector<GradientSlot> slots;
    for (std::size_t i = 0; i < count; ++i)
      slots.push_back(slot("x", i * i * 17, i % 3 == 0 ? DType::bf16 : DType::f32));
    std::vector<int> seen(count);
    for (const auto& bucket :
         lay_out_buckets(slots, reverse_order(count), {.first_bytes = 512, .cap_bytes = 4096})) {
      for (std::size_t i = 0; i < bucket.slots.size(); ++i) {
        ++seen[bucket.slots[i]];
        EXPECT_LE(bucket.offsets[i] + slots[bucket.slots[i]].count, bucket.count);
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

// Four gradients of 4 floats, two a bucket: buckets {3, 2} and {1, 0}.
class ReducerTest : public testing::Test {
 protected:
  ReducerTest() : communicator_(2), reducer_(communicator_, make_device("cpu"), slots(), options()) {}
  static std::vector<GradientSlot> slots() {
    return {slot("w0", 4), slot("w1", 4), slot("w2", 4), slot("w3", 4)};
  }
  static ReducerOptions options() {
    return {.buckets = {.first_bytes = 32, .cap_bytes = 32}, .arrival_order = {}};
  }
  float* values(std::size_t index) { return reducer_.gradient(index).as<float>(); }
  void write(std::size_t index, float value) { std::fill_n(values(index), 4, value); }

  FakeCommunicator communicator_;
  Reducer reducer_;
};

TEST_F(ReducerTest, StartsABucketAsSoonAsItIsFull) {
  EXPECT_EQ(reducer_.bucket_count(), 2U);
  write(3, 4), reducer_.mark_ready(3);
  EXPECT_EQ(communicator_.started.size(), 0U);
  write(2, 6), reducer_.mark_ready(2);
  ASSERT_EQ(communicator_.started.size(), 1U);
  EXPECT_EQ(communicator_.started[0].label, "bucket 0 (w3 to w2)");
  EXPECT_FALSE(communicator_.started[0].waited);
  EXPECT_EQ(values(3)[1], 2.0F) << "divided by the world before the sum";
  EXPECT_EQ(values(2)[1], 3.0F);
}

TEST_F(ReducerTest, KeepsBucketOrderWhenALaterOneIsFullFirst) {
  reducer_.mark_ready(0), reducer_.mark_ready(1);
  EXPECT_EQ(communicator_.started.size(), 0U);
  reducer_.mark_ready(2), reducer_.mark_ready(3);
  ASSERT_EQ(communicator_.started.size(), 2U);
  EXPECT_EQ(communicator_.started[0].label, "bucket 0 (w3 to w2)");
  EXPECT_EQ(communicator_.started[1].label, "bucket 1 (w1 to w0)");
}

TEST(ReducerLabels, NameTheTensorOfABucketOfOne) {
  FakeCommunicator communicator(2);
  Reducer reducer(communicator, make_device("cpu"), {slot("weight", 4)}, {});
  reducer.mark_ready(0);
  ASSERT_EQ(communicator.started.size(), 1U);
  EXPECT_EQ(communicator.started[0].label, "bucket 0 (weight)");
}

TEST_F(ReducerTest, FinishWaitsForAllAndStartsAnew) {
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 4; i-- > 0;) write(i, 2), reducer_.mark_ready(i);
    reducer_.finish(kNever);
    EXPECT_EQ(values(0)[0], 1.0F);
  }
  EXPECT_EQ(communicator_.started.size(), 6U);
  for (const auto& one : communicator_.started) EXPECT_TRUE(one.waited);
  EXPECT_EQ(reducer_.stats().steps, 3U);
  EXPECT_EQ(reducer_.stats().bytes, 3U * 2 * 2 * 64);
}

TEST_F(ReducerTest, UnusedGradientsCountAsZero) {
  for (std::size_t i = 0; i < 4; ++i) write(i, 8);
  reducer_.mark_ready(3), reducer_.mark_ready(1);
  reducer_.finish(kNever);
  EXPECT_EQ(communicator_.started.size(), 2U);
  EXPECT_EQ(values(3)[0], 4.0F);
  EXPECT_EQ(values(2)[0], 0.0F);
  EXPECT_TRUE(reducer_.was_used(1));
  EXPECT_FALSE(reducer_.was_used(2));
}

TEST_F(ReducerTest, AccumulationOnlyCommunicatesInTheLastPass) {
  reducer_.set_sync(false);
  for (std::size_t i = 0; i < 4; ++i) write(i, 2), reducer_.mark_ready(i);
  EXPECT_EQ(communicator_.started.size(), 0U);
  reducer_.set_sync(true);
  for (std::size_t i = 1; i < 4; ++i) write(i, 6), reducer_.mark_ready(i);
  reducer_.finish(kNever);
  EXPECT_EQ(communicator_.started.size(), 2U);
  EXPECT_EQ(values(1)[0], 3.0F);
  EXPECT_EQ(values(0)[0], 1.0F) << "used in the first pass only: not zeroed";
}

TEST_F(ReducerTest, RefusesAGradientThatIsReadyTwice) {
  reducer_.mark_ready(1);
  try {
    reducer_.mark_ready(1);
    FAIL() << "no error came";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'w1'"));
  }
}

TEST_F(ReducerTest, HandsPeerErrorsOn) {
  for (std::size_t i = 0; i < 4; ++i) reducer_.mark_ready(i);
  communicator_.fail_waits = true;
  EXPECT_THROW(reducer_.finish(kNever), PeerError);
}

TEST(Reducer, TakesTheArrivalOrder) {
  FakeCommunicator communicator(2);
  const std::vector<GradientSlot> slots = {slot("a", 8), slot("b", 8), slot("c", 8)};
  ReducerOptions options{.buckets = {.first_bytes = 32, .cap_bytes = 32}, .arrival_order = {1, 0, 2}};
  const Reducer reducer(communicator, make_device("cpu"), slots, options);
  EXPECT_THAT(reducer.layout(0).slots, ElementsAre(1));
  for (const std::vector<std::size_t>& bad : {std::vector<std::size_t>{0, 0, 1}, {0, 1}, {0, 1, 3}}) {
    options.arrival_order = bad;
    EXPECT_THROW(Reducer(communicator, make_device("cpu"), slots, options), UsageError);
  }
}

// Of two models in one program it is said whose no_sync() was forgotten.
TEST(Reducer, SaysWhoseGradientWasReadyTwice) {
  FakeCommunicator communicator(1);
  Reducer reducer(communicator, make_device("cpu"), {slot("a", 3), slot("b", 5)},
                  {.owner = "the module with a to b"});
  reducer.mark_ready(1);
  const auto again = [&] { reducer.mark_ready(1); };
  EXPECT_THAT(test::message_of(again),
              testing::HasSubstr("'b' became ready twice in one step of the module with a to b"));
}

TEST(Reducer, MemoryIsAlignedAndOutlivesIt) {
  FakeCommunicator communicator(1);
  std::shared_ptr<void> memory;
  float* data = nullptr;
  {
    const Reducer reducer(communicator, make_device("cpu"), {slot("a", 3), slot("b", 5)});
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reducer.gradient(i).data) % 64, 0U);
    }
    memory = reducer.memory_of(1);
    data = reducer.gradient(1).as<float>();
  }
  data[4] = 1.0F;
  EXPECT_EQ(data[4], 1.0F);
}

}  // namespace
}  // namespace dtrain
