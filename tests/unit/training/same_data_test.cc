// Workers whose data differ, and runs that are resumed with other data than they began with.
#include "training/start/same_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>

#include "collectives/thread_ranks.h"
#include "runtime/base/error.h"
#include "runtime/data/sources/tensor_source.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();

/// `size` numbers from `first` on.
TensorSource numbers(std::int64_t size, float first = 0) {
  const auto owner = std::make_shared<std::vector<float>>(static_cast<std::size_t>(size));
  std::iota(owner->begin(), owner->end(), first);
  return {"numbers", {{"x", {owner->data(), DType::f32, {size}, {1}}, owner}}};
}

/// What each of three ranks heard, the last of which has `other`.
std::map<int, std::string> heard(const TensorSource& other) {
  NullLog log;
  std::mutex mutex;
  std::map<int, std::string> words;
  run_thread_ranks(3, {}, log, [&](Communicator& workers) {
    const TensorSource own = numbers(20), test = numbers(5);
    std::string told;
    try {
      check_same_data(fingerprint(workers.rank() == 2 ? other : own, test), workers, kNever);
      workers.barrier("next")->wait(kNever);
    } catch (const Error& error) {
      told = error.what();
    }
    const std::lock_guard lock(mutex);
    words[workers.rank()] = told;
  });
  return words;
}

TEST(SameData, CopiesThatDifferAreNamedOnEveryRank) {
  for (const auto& [rank, words] : heard(numbers(20))) EXPECT_EQ(words, "") << rank;
  const auto longer = heard(numbers(21)), changed = heard(numbers(20, 1));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(longer.at(rank),
                AllOf(HasSubstr("rank 2 has different data from rank 0"), HasSubstr("got 21 samples")));
    EXPECT_THAT(changed.at(rank), HasSubstr("rank 2 has different data from rank 0"));
  }
}

class Lines final : public Log {
 public:
  void write(LogLevel, std::string_view message) noexcept override { text_ += std::string(message) + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// What a run hears that continues with `train` where it had twenty numbers.
std::string resumed(const TensorSource& train, bool noted = true) {
  const TensorSource before = numbers(20), test = numbers(5);
  TrainingState state;
  if (noted) state.extra = to_entries(fingerprint(before, test));
  Lines log;
  const std::string refused = test::message_of(
      [&] { check_resumed_data("run/step-7", state, train, test, fingerprint(train, test), log); });
  return (refused == "no error" ? "" : refused) + log.text();
}

TEST(SameData, ARunGoesOnWithItsSamplesAndThoseBehindThem) {
  EXPECT_EQ(resumed(numbers(20)), "");
  EXPECT_THAT(resumed(numbers(23)), AllOf(HasSubstr("have grown since run/step-7"), HasSubstr("23 samples")));
  EXPECT_THAT(resumed(numbers(19)),
              AllOf(HasSubstr("--dataset: the data are not those"), HasSubstr("--run-dir")));
  EXPECT_THAT(resumed(numbers(20, 1)), HasSubstr("the data are not those that run/step-7 was trained on"));
  EXPECT_THAT(resumed(numbers(23, 1)), HasSubstr("the data are not those"));
  EXPECT_THAT(resumed(numbers(19), false), HasSubstr("written by an older version")) << "and is read";
}

TEST(SameData, InitialWeightsHaveTheirClassesInTheirOrder) {
  const auto fields = [](std::vector<std::string> names) {
    return std::vector<Field>{{.name = "label", .dtype = DType::i64, .values = 2, .value_names = names}};
  };
  const auto started = [&](std::vector<std::string> names) {
    DataFingerprint learned{describe_with_columns(fields({})), {}, {}};
    learned.names = names_of_values(fields({"cat", "dog"}));
    return test::message_of([&] { check_initial_columns("runs/a", to_entries(learned), fields(names)); });
  };
  EXPECT_EQ(started({"cat", "dog"}), "no error");
  EXPECT_EQ(started({"ham", "spam"}), "no error") << "other classes are the user's choice";
  EXPECT_THAT(started({"dog", "cat"}), AllOf(HasSubstr("--init-from"), HasSubstr("expected label 0 is cat")));
}

}  // namespace
}  // namespace dtrain
