// Compressed gradients: PyTorch's hooks on recorded gradients, what error feedback keeps, and what is
// refused. Ranks are threads.
#include "parallel/sync/hooks/compress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "collectives/thread_ranks.h"
#include "parallel/sync/hooks/power_sgd.h"
#include "parallel/sync/reducer.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/unit/parallel/torch_hooks.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

const Deadline kNever = Deadline::never();

/// As the script that recorded PyTorch's numbers has it.
float hook_value(int rank, int step, int i) {
  const int mixed = (i * 37 + rank * 101 + step * 53 + i * i % 19 * 7) % 97;
  return static_cast<float>(mixed - 48) / 64.0F;
}

/// Steps of a reducer whose gradients are those of `slots`; results of each step, slot after slot.
class Steps {
 public:
  Steps(Communicator& communicator, std::vector<GradientSlot> slots, std::shared_ptr<CommHook> exchange,
        std::shared_ptr<Device> device = make_device("cpu"))
      : slots_(std::move(slots)),
        device_(std::move(device)),
        reducer_(communicator, device_, slots_, {.exchange = std::move(exchange)}) {}

  template <class Value>
  std::vector<float> run(Value value) {
    int i = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      auto* const gradient = static_cast<float*>(reducer_.gradient(slot).data);
      for (std::size_t k = 0; k < slots_[slot].count; ++k) gradient[k] = value(i++);
    }
    for (std::size_t slot = slots_.size(); slot-- > 0;) reducer_.mark_ready(slot);
    reducer_.finish(kNever);
    std::vector<float> result;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const auto* const gradient = static_cast<const float*>(reducer_.gradient(slot).data);
      result.insert(result.end(), gradient, gradient + slots_[slot].count);
    }
    return result;
  }

 private:
  std::vector<GradientSlot> slots_;
  std::shared_ptr<Device> device_;
  Reducer reducer_;
};

void expect_near(const std::vector<float>& got, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
}

TEST(Compress, HalfThePrecisionAsPyTorchsHooks) {
  NullLog log;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
      Steps steps(communicator, {{"w", 40, DType::f32, {40}}}, compress_to(dtype));
      const auto value = [&](int i) {
        return static_cast<float>(static_cast<double>(hook_value(communicator.rank(), 9, i)) * 1.001);
      };
      const auto got = steps.run(value);
      // PyTorch divides after the cast, and adds in the short dtype.
      const bool f16 = dtype == DType::f16;
      expect_near(got, f16 ? test::kTorchFp16 : test::kTorchBf16, f16 ? 1e-3 : 8e-3);
      for (int i = 0; i < 40; ++i) {
        const auto cast = [&](float x) {
          return f16 ? static_cast<float>(Float16(x)) : static_cast<float>(BFloat16(x));
        };
        float sum = 0;
        for (int rank = 0; rank < 2; ++rank)
          sum += cast(static_cast<float>(static_cast<double>(hook_value(rank, 9, i)) * 1.001) * 0.5F);
        ASSERT_EQ(got[static_cast<std::size_t>(i)], cast(sum)) << i;
      }
    });
  }
}

PowerSgdOptions recorded_options() {
  return {.rank = 2,
          .start_step = 0,
          .min_compression_rate = 1,
          .seed = 0,
          .initial = [](const Dims& shape, const std::shared_ptr<Device>& device) {
            std::vector<float> values(static_cast<std::size_t>(shape.product()));
            for (std::size_t i = 0; i < values.size(); ++i)
              values[i] = static_cast<float>(static_cast<int>((i * 29 + 5) % 41) - 20) / 16.0F;
            return Tensor::from_data(values, shape, device);
          }};
}

const std::vector<GradientSlot> kRecordedSlots = {{"w", 48, DType::f32, {6, 8}}, {"b", 5, DType::f32, {5}}};

TEST(PowerSgd, IsPyTorchsFromTheSameMatrices) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    Steps steps(communicator, kRecordedSlots, power_sgd(recorded_options()));
    const auto run = [&](int step) {
      return steps.run([&](int i) { return hook_value(communicator.rank(), step, i); });
    };
    expect_near(run(0), test::kTorchPowerSgd0, 2e-6);
    expect_near(run(1), test::kTorchPowerSgd1, 4e-6);
    expect_near(run(2), test::kTorchPowerSgd2, 8e-6);
  });
}

TEST(PowerSgd, AFullRankLosesNothing) {
  NullLog log;
  for (const int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
      PowerSgdOptions options{.rank = 6, .start_step = 0, .min_compression_rate = 1};
      // [6, 40]: of rank 6, kept in 6 · 46 numbers, which is no saving; so it goes whole.
      Steps whole(communicator, {{"w", 240, DType::f32, {6, 40}}}, power_sgd(options));
      options.rank = 3;
      // Each rank's gradient is u · vᵀ with one v: the mean is of rank 1 and comes through a rank of 3.
      Steps low(communicator, {{"w", 240, DType::f32, {6, 40}}}, power_sgd(options));
      const auto outer = [](int rank, int i) {
        return static_cast<float>((i / 40 + 1) * (rank + 2)) * std::sin(static_cast<float>(i % 40));
      };
      const auto value = [&](int i) { return outer(communicator.rank(), i); };
      for (Steps* steps : {&whole, &low}) {
        const auto got = steps->run(value);
        for (int i = 0; i < 240; ++i) {
          float mean = 0;
          for (int rank = 0; rank < ranks; ++rank) mean += outer(rank, i) / static_cast<float>(ranks);
          ASSERT_NEAR(got[static_cast<std::size_t>(i)], mean, 2e-5) << i;
        }
      }
    });
  }
}

// The same gradient again and again: what one step loses the next ones bring, so that the mean over steps
// nears it.
TEST(PowerSgd, ErrorFeedbackBringsWhatWasLost) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    Steps steps(communicator, {{"w", 20 * 30, DType::f32, {20, 30}}},
                power_sgd({.rank = 2, .start_step = 0, .seed = 3}));
    const auto value = [](int i) { return std::sin(static_cast<float>(i * i % 101)); };
    std::vector<double> total(600);
    double first = 0, last = 0;
    constexpr int kSteps = 60;
    for (int step = 1; step <= kSteps; ++step) {
      const auto got = steps.run(value);
      double error = 0;
      for (std::size_t i = 0; i < total.size(); ++i) {
        total[i] += static_cast<double>(got[i]);
        const double off = total[i] / step - static_cast<double>(value(static_cast<int>(i)));
        error += off * off;
      }
      (step == 1 ? first : last) = std::sqrt(error / 600);
    }
    EXPECT_GT(first, 0.4) << "two columns are little of it";
    EXPECT_LT(last, first / 4);
  });
}

// A step that overflowed is skipped by the loss scaler: the next one is as if it had not been.
TEST(PowerSgd, AStepThatIsNotFiniteLeavesNoTrace) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    Steps disturbed(communicator, kRecordedSlots, power_sgd(recorded_options()));
    Steps quiet(communicator, kRecordedSlots, power_sgd(recorded_options()));
    const auto value = [&](int step) {
      return [&, step](int i) { return hook_value(communicator.rank(), step, i); };
    };
    EXPECT_EQ(disturbed.run(value(0)), quiet.run(value(0)));
    const auto overflow = disturbed.run([&](int i) {
      return i == 7 && communicator.rank() == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
    });
    EXPECT_FALSE(std::isfinite(std::accumulate(overflow.begin(), overflow.begin() + 48, 0.0F)))
        << "on both ranks, so that both skip";
    EXPECT_EQ(disturbed.run(value(1)), quiet.run(value(1)));
  });
}

// Settling moves what was lost from rank to rank, not their sum; what is saved then is all there is.
TEST(PowerSgd, GoesOnFromItsState) {
  NullLog log;
  run_thread_ranks(3, {}, log, [](Communicator& communicator) {
    const auto value = [&](int step) {
      return [&, step](int i) { return hook_value(communicator.rank(), step, i); };
    };
    PowerSgdOptions options = recorded_options();
    options.start_step = 1;  // of which the state tells too
    const auto exchange = power_sgd(options);
    const auto device = make_device("cpu");
    Steps settled(communicator, kRecordedSlots, exchange, device),
        plain(communicator, kRecordedSlots, power_sgd(options));
    for (int step = 0; step < 3; ++step) expect_near(settled.run(value(step)), plain.run(value(step)), 0);
    exchange->sync_state(communicator, kNever);
    NamedTensors saved;
    for (const auto& [name, tensor] : exchange->state()) saved.emplace_back(name, tensor.clone());
    const auto again = power_sgd(options);
    again->load(saved);
    Steps resumed(communicator, kRecordedSlots, again, device);
    for (int step = 3; step < 6; ++step) {
      const auto got = settled.run(value(step));
      EXPECT_EQ(resumed.run(value(step)), got) << step;
      expect_near(plain.run(value(step)), got, 1e-5);
    }
  });
}

// The sum over the ranks of what was lost is what counts: with matrices that lose nothing it comes back at
// once.
TEST(PowerSgd, AnotherNumberOfRanksGoesOnWithTheSameSum) {
  NullLog log;
  constexpr int kRows = 12, kColumns = 40;
  const std::vector<GradientSlot> slots = {{"w", kRows * kColumns, DType::f32, {kRows, kColumns}}};
  const auto of_rank_three = [](int rank, int step, int i) {
    float value = 0;
    for (int k = 0; k < 3; ++k) {
      const int column = (k + 1) * (i % kColumns);
      value += hook_value(rank, step, kRows * k + i / kColumns) * std::sin(static_cast<float>(column));
    }
    return value;
  };
  NamedTensors saved;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    const auto exchange = power_sgd({.rank = 1, .start_step = 0});
    Steps steps(communicator, slots, exchange);
    for (int step = 0; step < 3; ++step)
      steps.run([&](int i) { return of_rank_three(communicator.rank(), step, i); });
    exchange->sync_state(communicator, kNever);
    if (communicator.rank() > 0) return;
    for (const auto& [name, tensor] : exchange->state()) saved.emplace_back(name, tensor.clone());
  });
  const auto brought_back = [&](int ranks) {
    std::vector<float> lost;
    run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
      const auto exchange = power_sgd({.rank = 3, .start_step = 0});
      exchange->load(saved);
      Steps steps(communicator, slots, exchange);
      const auto got = steps.run([](int) { return 0.0F; });
      if (communicator.rank() == 0) lost = got;
    });
    return lost;
  };
  const std::vector<float> same = brought_back(2);
  const auto largest = std::ranges::max(same, {}, [](float value) { return std::abs(value); });
  EXPECT_GT(std::abs(largest), 0.1F) << "something was lost";
  for (const int ranks : {3, 4, 7}) {
    SCOPED_TRACE(ranks);
    expect_near(brought_back(ranks), same, 1e-4);
  }
}

TEST(PowerSgd, BeginsAfterSomeSteps) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    PowerSgdOptions options = recorded_options();
    options.start_step = 2;
    Steps steps(communicator, kRecordedSlots, power_sgd(options));
    for (int step = 0; step < 3; ++step) {
      const auto got = steps.run([&](int i) { return hook_value(communicator.rank(), step, i); });
      double off = 0;
      for (int i = 0; i < 48; ++i)
        off += std::abs(got[static_cast<std::size_t>(i)] -
                        (hook_value(0, step, i) + hook_value(1, step, i)) / 2);
      EXPECT_EQ(off > 0.1, step == 2) << "step " << step << ", off by " << off;
    }
  });
}

TEST(CompressErrors, AreNamed) {
  EXPECT_THAT(test::message_of([] { compress_to(DType::f64); }), HasSubstr("expected float16 or bfloat16"));
  EXPECT_THAT(test::message_of([] { power_sgd({.rank = 0}); }), HasSubstr("expected a rank from 1 on"));
  EXPECT_THAT(test::message_of([] { compression_named("powersgd:0"); }), HasSubstr("powersgd:0"));
  EXPECT_THAT(test::message_of([] { compression_named("zip"); }),
              HasSubstr("none, fp16, bf16 or powersgd:R"));
  EXPECT_EQ(compression_named("powersgd:4").rank, 4);
  EXPECT_EQ(compression_named("none").kind, Compression::Kind::none);
}

}  // namespace
}  // namespace dtrain
