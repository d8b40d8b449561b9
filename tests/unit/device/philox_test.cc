// Philox against the vectors that its authors publish (Random123, kat_vectors), and masks of dropout, which
// take many draws at once, against it.
#include "runtime/device/philox.h"

#include <gtest/gtest.h>

#include <array>

#include "runtime/device/cpu/workers/workers.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

void expect_words(std::uint64_t key, std::uint64_t low, std::uint64_t high,
                  const std::array<std::uint32_t, 4>& expected) {
  const Philox random(key, low, high);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(random.words[i], expected[i]) << i;
}

TEST(Philox, GivesThePublishedWords) {
  expect_words(0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(~0ULL, ~0ULL, ~0ULL, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

/// One draw for four neighbours of a row, as it is defined.
std::vector<double> masked_one_by_one(const MaskNumbers& numbers, double keep,
                                      const std::vector<std::int64_t>& rows, std::int64_t count,
                                      double kept) {
  std::vector<double> values;
  const std::uint64_t key = philox_key(numbers.seed, numbers.layer, 9);
  for (const std::int64_t row : rows) {
    for (std::int64_t place = numbers.first; place < numbers.first + count; ++place) {
      const Philox random(key, static_cast<std::uint64_t>(place) / 4, static_cast<std::uint64_t>(row));
      values.push_back(unit_interval(random.words[place % 4]) < static_cast<float>(keep) ? kept : 0);
    }
  }
  return values;
}

TEST(DropoutMask, IsWhatPhiloxSaysPlaceByPlace) {
  const auto device = make_device("cpu");
  std::int64_t step = 9;
  std::vector<std::int64_t> rows{7, 0, -1};
  const int before = cpu::worker_count();
  for (const int threads : {1, 3}) {
    cpu::set_worker_count(threads);
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{3}, std::int64_t{250}, (std::int64_t{1} << 34) - 5}) {
      for (const std::int64_t count : {1, 255, 256, 257, 30000}) {
        for (const double keep : {0.75, 0.3, 1.0}) {
          for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
            test::Array mask({3, count}, dtype), kept({1}, dtype);
            kept.set({1 / keep});
            const MaskNumbers numbers{.seed = 5,
                                      .layer = 2,
                                      .step = {&step, DType::i64, {1}, {1}},
                                      .rows = {rows.data(), DType::i64, {3}, {1}},
                                      .first = first};
            device->kernels().dropout_mask(numbers, keep, mask.view());
            EXPECT_EQ(mask.values(), masked_one_by_one(numbers, keep, rows, count, kept.values()[0]))
                << count << " from " << first << ", keep " << keep << ", " << threads << " threads";
          }
        }
      }
    }
  }
  cpu::set_worker_count(before);
}

}  // namespace
}  // namespace dtrain
