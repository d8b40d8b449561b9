// Evaluation: what it counts, and how long it waits for whom.
#include "training/engine/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "collectives/thread_ranks.h"
#include "models/tasks/classification.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"
#include "runtime/metrics/ranking.h"
#include "tests/support/sample.h"
#include "tests/unit/collectives/fake_communicator.h"
#include "training/engine/confusion_counter.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kClasses = 10;

/// Confusion class 3 for every image, after a while.
std::function<Tensors(const Tensors&)> guess_after(milliseconds pause) {
  return [pause](const Tensors& inputs) {
    std::this_thread::sleep_for(pause);
    Tensor logits = Tensor::zeros({inputs[0].size(0), kClasses}, inputs[0].shared_device());
    logits.slice(1, 3, 4).fill(1);
    return Tensors{logits};
  };
}

TEST(Evaluate, CountsEachSampleOnce) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,23", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  const Evaluation found =
      evaluate(task, guess_after(milliseconds(0)), source,
               {.batch_size = 4, .patience = std::chrono::seconds(30)}, communicator, make_device("cpu"));
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < source->size(); ++i) right += test::label(*source, i) == 3 ? 1 : 0;
  EXPECT_EQ(found.samples, source->size());
  EXPECT_DOUBLE_EQ(found["accuracy"], static_cast<double>(right) / static_cast<double>(source->size()));
  EXPECT_THROW(found["speed"], UsageError);
}

TEST(Evaluate, CountsWhatIsTakenForWhat) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,23", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  const Evaluation found =
      evaluate(task, guess_after(milliseconds(0)), source,
               {.batch_size = 4, .patience = std::chrono::seconds(30)}, communicator, make_device("cpu"));
  ASSERT_TRUE(found.confusion);
  std::vector<std::int64_t> expected(kClasses * kClasses);
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < source->size(); ++i) {
    const std::int64_t label = test::label(*source, i);
    ++expected[static_cast<std::size_t>(label * kClasses + 3)];
    wrong += label == 3 ? 0 : 1;
  }
  EXPECT_EQ(found.confusion->counts, expected);
  ASSERT_EQ(found.confusion->worst.size(), std::min(wrong, Confusion::kMostMistakes));
  const Mistake& first = found.confusion->worst.front();
  EXPECT_EQ(first.label, test::label(*source, first.sample));
  EXPECT_EQ(first.predicted, 3);
  EXPECT_NEAR(first.probability, 1 / (9 + std::exp(1.0)), 1e-7);
}

/// Class 1 is the likelier the larger the picture's first pixel.
Tensors guess_by_first_pixel(const Tensors& inputs) {
  const Tensor first = inputs[0].flatten(1).select(1, 0);
  return {stack({mul(first, 0.0), first}, 1)};
}

// 23 samples on 1, 2, 3 and 5 ranks: each has others, and as many or one less.
TEST(Evaluate, RanksTheSamplesOfAllRanksTogether) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,2,23", .data_dir = ""}).test;
  const auto device = make_device("cpu");
  std::vector<double> areas, precisions;
  for (const int ranks : {1, 2, 3, 5}) {
    std::mutex mutex;
    NullLog log;
    run_thread_ranks(ranks, {.timeout = std::chrono::seconds(60)}, log, [&](Communicator& communicator) {
      const Evaluation found = evaluate(task, guess_by_first_pixel, source,
                                        {.batch_size = 4,
                                         .share = {communicator.rank(), communicator.size()},
                                         .patience = std::chrono::seconds(60)},
                                        communicator, make_device("cpu"));
      const std::lock_guard lock(mutex);
      areas.push_back(found["auc"]);
      precisions.push_back(found["average_precision"]);
    });
  }
  std::vector<ScoredLabel> samples;
  for (std::int64_t i = 0; i < source->size(); ++i)
    samples.push_back({test::image(*source, i).front(), test::label(*source, i) == 1});
  ASSERT_EQ(areas.size(), 11U);
  for (const double area : areas) EXPECT_EQ(area, roc_auc(samples).value());
  for (const double precision : precisions) EXPECT_EQ(precision, average_precision(samples).value());
}

// The sums of any number of ranks say what one rank with all samples finds.
TEST(ConfusionCounter, IsTheSameForAnyNumberOfRanks) {
  constexpr std::int64_t kSamples = 200, kFew = 5;
  const auto device = make_device("cpu");
  Generator generator(7);
  std::vector<float> logits(kSamples * kFew);
  generator.uniform(std::span(logits), 0, 4);
  std::vector<std::int64_t> labels, indices;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    labels.push_back(i % 11 == 0 ? -100 : i % kFew);  // some of no class
    indices.push_back(1000 + i);
  }
  const Field field{.name = "label", .dtype = DType::i64, .values = kFew};
  const auto found = [&](int ranks) {
    std::vector<double> sums;
    for (int rank = 0; rank < ranks; ++rank) {
      ConfusionCounter counter(&field, rank, ranks);
      std::vector<double> own(counter.sum_count());
      sums.resize(own.size());
      const std::int64_t begin = kSamples * rank / ranks, end = kSamples * (rank + 1) / ranks;
      for (std::int64_t at = begin; at < end; at += 7) {
        const std::int64_t count = std::min<std::int64_t>(7, end - at);
        const auto of = [&](auto& values, std::int64_t each) {
          return std::span<const std::decay_t<decltype(values[0])>>(values).subspan(
              static_cast<std::size_t>(at * each), static_cast<std::size_t>(count * each));
        };
        counter.add(Tensor::from_data(of(logits, kFew), {count, kFew}, device),
                    Tensor::from_data(of(labels, 1), {count}, device), of(indices, 1));
      }
      counter.write(own);
      for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i];
    }
    return ConfusionCounter(&field, 0, ranks).read(sums);
  };
  const Confusion one = found(1);
  EXPECT_EQ(std::accumulate(one.counts.begin(), one.counts.end(), std::int64_t{0}), kSamples - 19);
  ASSERT_EQ(one.worst.size(), Confusion::kMostMistakes);
  EXPECT_TRUE(std::ranges::is_sorted(one.worst, {}, &Mistake::probability));
  for (const int ranks : {2, 3, 7}) {
    const Confusion all = found(ranks);
    EXPECT_EQ(all.counts, one.counts) << ranks;
    ASSERT_EQ(all.worst.size(), one.worst.size());
    for (std::size_t i = 0; i < one.worst.size(); ++i) {
      EXPECT_EQ(all.worst[i].sample, one.worst[i].sample) << ranks;
      EXPECT_EQ(all.worst[i].predicted, one.worst[i].predicted);
      EXPECT_EQ(all.worst[i].probability, one.worst[i].probability);
    }
  }
}

TEST(ConfusionCounter, OfManyClassesOnlyTheWorstMistakesAreKept) {
  const Field field{.name = "label", .dtype = DType::i64, .values = Confusion::kMostClasses + 1};
  const ConfusionCounter counter(&field, 0, 2);
  EXPECT_EQ(counter.sum_count(), 2 * 4 * Confusion::kMostMistakes);
  EXPECT_EQ(ConfusionCounter(nullptr, 0, 2).sum_count(), 0U);
}

TEST(Evaluate, RanksWithoutOutputsCountNothing) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,23", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  int calls = 0;
  evaluate(
      task,
      [&](const Tensors&) {
        ++calls;
        return Tensors{};
      },
      source, {.batch_size = 8, .counts = false, .patience = std::chrono::seconds(30)}, communicator,
      make_device("cpu"));
  EXPECT_EQ(calls, 3);
  ASSERT_EQ(communicator.started.size(), 1U);
  // The task's sums, samples, units; who is taken for whom; the worst mistakes of each rank.
  EXPECT_EQ(communicator.started[0].span.count,
            task.sum_count() + 2 + kClasses * kClasses + 4 * Confusion::kMostMistakes);
}

TEST(Evaluate, MayTakeLongerThanTheOthersAreWaitedFor) {
  const Classification task("mlp");
  const auto source = task.open({.dataset = "synthetic:1x2x2,10,3", .data_dir = ""}).test;
  test::FakeCommunicator communicator(1);
  evaluate(task, guess_after(milliseconds(400)), source,
           {.batch_size = 1, .patience = std::chrono::seconds(1)}, communicator, make_device("cpu"));
  ASSERT_EQ(communicator.started.size(), 1U);
  EXPECT_TRUE(communicator.started[0].waited);
  EXPECT_FALSE(communicator.started[0].late);
}

}  // namespace
}  // namespace dtrain
