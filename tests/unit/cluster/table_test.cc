// The store's logic without sockets: who is answered when, limits, and that waits leave nothing behind.
#include "cluster/store/store_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace dtrain {
namespace {

using testing::IsEmpty;
using testing::SizeIs;
using wire::Op;
using wire::Request;
using wire::Status;

class TableTest : public testing::Test {
 protected:
  struct Answer {
    std::uint64_t client;
    wire::Response response;
  };

  // Applies one request and returns what was answered, to whomever.
  std::vector<Answer> ask(std::uint64_t client, Request request) {
    answers_.clear();
    table_.apply(client, request);
    return answers_;
  }
  std::vector<Answer> set(std::uint64_t client, const std::string& key, const std::string& value) {
    return ask(client, {.op = Op::set, .id = 1, .keys = {key}, .value = value, .expected = {}});
  }
  std::vector<Answer> wait(std::uint64_t client, std::uint64_t id, std::vector<std::string> keys) {
    return ask(client, {.op = Op::wait, .id = id, .keys = std::move(keys), .value = {}, .expected = {}});
  }
  std::vector<Answer> get(std::uint64_t client, std::uint64_t id, const std::string& key) {
    return ask(client, {.op = Op::get, .id = id, .keys = {key}, .value = {}, .expected = {}});
  }

  std::vector<Answer> answers_;
  StoreTable table_{
      {.max_bytes = 1000, .max_keys = 10, .max_waits_per_client = 3, .max_awaited_keys_per_client = 40},
      [this](std::uint64_t client, wire::Response response) {
        answers_.push_back({client, std::move(response)});
      }};
};

// Keys that do not exist cost the store memory too.
TEST_F(TableTest, KeysThatAreOnlyWaitedForAreLimited) {
  const auto keys = [](int first, int last) {
    std::vector<std::string> all;
    for (int i = first; i < last; ++i) all.push_back(std::string("key").append(std::to_string(i)));
    return all;
  };
  EXPECT_THAT(wait(1, 1, keys(0, 8)), IsEmpty());
  EXPECT_THAT(wait(2, 1, keys(0, 8)), IsEmpty()) << "the same keys again";
  ASSERT_THAT(wait(2, 2, keys(8, 11)), SizeIs(1)) << "an eleventh key";
  EXPECT_EQ(answers_[0].response.status, Status::full);
  EXPECT_THAT(wait(2, 3, keys(8, 10)), IsEmpty());
  EXPECT_EQ(table_.awaited_count(), 10U);
  ASSERT_THAT(set(3, "key0", "v"), SizeIs(1)) << "clients that store are not kept from it";
  EXPECT_EQ(table_.awaited_count(), 9U);
  ASSERT_THAT(get(4, 1, std::string(1000, 'k')), SizeIs(1)) << "bytes count too";
  EXPECT_EQ(answers_[0].response.status, Status::full);
  table_.drop_client(1);
  table_.drop_client(2);
  EXPECT_EQ(table_.awaited_count(), 0U);
  EXPECT_THAT(get(4, 1, std::string(1000, 'k')), IsEmpty()) << "nothing is left of those that ended";
}

TEST_F(TableTest, OneClientsWaitsAreForSoManyKeysTogether) {
  std::vector<std::string> twenty;
  for (int i = 0; i < 20; ++i) twenty.push_back(std::string("k").append(std::to_string(i % 10)));
  StoreTable table({.max_awaited_keys_per_client = 10},
                   [this](std::uint64_t client, wire::Response response) {
                     answers_.push_back({client, std::move(response)});
                   });
  table.apply(1, {.op = Op::wait, .id = 1, .keys = twenty, .value = {}, .expected = {}});
  EXPECT_THAT(answers_, IsEmpty());
  table.apply(1, {.op = Op::get, .id = 2, .keys = {"another"}, .value = {}, .expected = {}});
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_EQ(answers_[0].response.status, Status::misuse);
}

TEST_F(TableTest, OneSetAnswersEveryWaiterAndTheSetter) {
  for (std::uint64_t client = 1; client <= 5; ++client) EXPECT_THAT(get(client, 7, "k"), IsEmpty());
  const auto answers = set(9, "k", "v");
  ASSERT_THAT(answers, SizeIs(6));
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.response.status, Status::ok);
    EXPECT_EQ(answer.response.value, answer.client == 9 ? "" : "v");
    EXPECT_EQ(answer.response.id, answer.client == 9 ? 1U : 7U);
  }
  EXPECT_EQ(table_.wait_count(), 0U);
}

TEST_F(TableTest, CancelledWaitListsWhatIsMissing) {
  wait(1, 5, {"a", "b", "c"});
  set(2, "b", "");
  const auto answers = ask(1, {.op = Op::cancel, .id = 5, .keys = {}, .value = {}, .expected = {}});
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].response.status, Status::cancelled);
  EXPECT_THAT(answers[0].response.value, testing::AnyOf("a\nc\n", "c\na\n"));
  EXPECT_THAT(set(2, "a", ""), SizeIs(1)) << "nobody waits any more";
  EXPECT_THAT(ask(1, {.op = Op::cancel, .id = 5, .keys = {}, .value = {}, .expected = {}}), IsEmpty());
}

TEST_F(TableTest, ADroppedClientsWaitsAreGone) {
  wait(1, 5, {"a", "b"});
  wait(1, 6, {"b"});
  wait(2, 5, {"b"});
  table_.drop_client(1);
  table_.drop_client(1);
  EXPECT_EQ(table_.wait_count(), 1U);
  EXPECT_THAT(set(3, "b", ""), SizeIs(2));
}

TEST_F(TableTest, LimitsAreAnsweredNotExceeded) {
  EXPECT_EQ(set(1, "big", std::string(2000, 'x'))[0].response.status, Status::full);
  EXPECT_EQ(table_.key_count(), 0U);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(set(1, std::to_string(i), "v")[0].response.status, Status::ok);
  EXPECT_EQ(set(1, "eleventh", "v")[0].response.status, Status::full);
  EXPECT_EQ(set(1, "3", "changed")[0].response.status, Status::ok);
  EXPECT_EQ(ask(1, {.op = Op::remove, .id = 1, .keys = {"3"}, .value = {}, .expected = {}})[0].response.value,
            "1");
  EXPECT_EQ(table_.stored_bytes(), 9U * 2);
  EXPECT_EQ(set(1, "eleventh", "v")[0].response.status, Status::ok);
  for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_THAT(get(1, id, "later"), IsEmpty());
  EXPECT_EQ(get(1, 4, "later")[0].response.status, Status::misuse);
  EXPECT_EQ(get(2, 4, "later").size(), 0U) << "another client is not affected";
}

TEST_F(TableTest, SameRequestNumberTwiceIsMisuse) {
  get(1, 1, "k");
  EXPECT_EQ(get(1, 1, "k")[0].response.status, Status::misuse);
}

TEST_F(TableTest, CountersDoNotOverflow) {
  const auto add = [&](std::int64_t delta) {
    return ask(1, {.op = Op::add, .id = 1, .keys = {"n"}, .value = {}, .expected = {}, .delta = delta})[0]
        .response;
  };
  EXPECT_EQ(add(INT64_MAX).value, std::to_string(INT64_MAX));
  EXPECT_EQ(add(1).status, Status::misuse);
  EXPECT_EQ(add(INT64_MIN).value, "-1");
}

// With a list to search for each client this would take minutes.
TEST(Table, TenThousandWaitersComeAndGoQuickly) {
  std::size_t answered = 0;
  StoreTable table({}, [&](std::uint64_t, const wire::Response&) { ++answered; });
  const auto start = std::chrono::steady_clock::now();
  constexpr std::uint64_t kClients = 10000;
  const auto wait_all = [&] {
    for (std::uint64_t client = 0; client < kClients; ++client) {
      Request request;
      request.op = Op::wait;
      request.id = 1;
      request.keys = {"all", "own/" + std::to_string(client)};
      table.apply(client, request);
    }
  };
  wait_all();
  for (std::uint64_t client = 0; client < kClients; ++client) table.drop_client(client);
  EXPECT_EQ(table.wait_count(), 0U);
  wait_all();
  Request set;
  set.keys = {"all"};
  table.apply(kClients, set);
  for (std::uint64_t client = 0; client < kClients; ++client) {
    set.keys = {"own/" + std::to_string(client)};
    table.apply(kClients, set);
  }
  EXPECT_EQ(answered, 1 + 2 * kClients);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace dtrain
