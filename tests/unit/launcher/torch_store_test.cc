// PyTorch's TCPStore protocol, in bytes recorded between a client and a server of PyTorch 2.15, and what the
// store does with clients that speak something else.
#include "launcher/agent_store/torch_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dtrain::launcher {
namespace {

using ::testing::UnorderedElementsAre;

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string hex_of(std::string_view bytes) {
  std::string hex;
  char digits[3];
  for (const char c : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    hex += digits;
  }
  return hex;
}

// What waits for `client`, taken by it.
std::string taken(TorchStore& store, TorchStore::ClientId client) {
  const std::string replies(store.replies(client));
  EXPECT_TRUE(store.took(client, replies.size()));
  return hex_of(replies);
}

const std::string kHello = "00cef7853c";

class TorchStoreTest : public ::testing::Test {
 protected:
  // A new client that has said hello.
  TorchStore::ClientId client() {
    store_.join(++last_);
    EXPECT_TRUE(store_.feed(last_, bytes_of(kHello)));
    return last_;
  }
  std::string ask(TorchStore::ClientId client, const std::string& hex) {
    EXPECT_TRUE(store_.feed(client, bytes_of(hex))) << hex;
    return taken(store_, client);
  }

  TorchStore store_;
  TorchStore::ClientId last_ = 0;
};

struct Exchange {
  const char* what;
  const char* sent;
  const char* answered;
};

// As recorded, in this order; PyTorch's client puts a slash before each key.
const std::vector<Exchange> kRecorded = {
    {"hello and ping", "00cef7853c0d506f0000", "506f0000"},
    {"set", "0102000000000000002f6b02000000000000007631", ""},
    {"wait", "06010000000000000002000000000000002f6b", "00"},
    {"get", "0302000000000000002f6b", "02000000000000007631"},
    {"add", "0402000000000000002f6e0500000000000000", "0500000000000000"},
    {"check", "05010000000000000002000000000000002f6b", "00"},
    {"check what is not there", "05010000000000000003000000000000002f7a7a", "01"},
    {"wait for two", "06020000000000000002000000000000002f6b02000000000000002f6e", "00"},
    {"compare_set", "0202000000000000002f6b0200000000000000763102000000000000007632", "02000000000000007632"},
    {"compare_set of nothing", "0202000000000000002f6d010000000000000078010000000000000079",
     "010000000000000078"},
    {"num_keys", "07", "0200000000000000"},
    {"delete_key", "0802000000000000002f6e", "0100000000000000"},
    {"append", "0902000000000000002f6b04000000000000007461696c", ""},
    {"multi_get", "0a020000000000000002000000000000002f6b02000000000000002f6b",
     "060000000000000076327461696c060000000000000076327461696c"},
    {"multi_set",
     "0b020000000000000002000000000000002f6101000000000000003102000000000000002f62010000000000000032", ""},
    {"queue_push", "0e02000000000000002f71010000000000000078", ""},
    {"queue_len", "1002000000000000002f71", "0100000000000000"},
    {"wait for a queue", "06010000000000000002000000000000002f71", "00"},
    {"queue_pop", "0f02000000000000002f71", "0100000000000000010000000000000078"},
    {"queue_pop of nothing", "0f02000000000000002f71", "0000000000000000"},
    {"list_keys, here in order", "11",
     "030000000000000002000000000000002f6102000000000000002f6202000000000000002f6b"},
    {"wait for what does not come", "06010000000000000006000000000000002f6e6f6b6579", ""},
    {"cancel_wait", "0c", "01"},
    {"barrier of one", "1202000000000000002f620100000000000000", "00"},
    {"get after all", "0302000000000000002f6b", "060000000000000076327461696c"},
};

TEST_F(TorchStoreTest, AnswersAsPyTorchsServerDid) {
  store_.join(1);
  for (const Exchange& exchange : kRecorded)
    EXPECT_EQ(ask(1, exchange.sent), exchange.answered) << exchange.what;
}

TEST_F(TorchStoreTest, ItDoesNotMatterHowTheNetworkCutsMessages) {
  store_.join(1);
  std::string answered, expected;
  for (const Exchange& exchange : kRecorded) {
    for (const char byte : bytes_of(exchange.sent)) {
      ASSERT_TRUE(store_.feed(1, {&byte, 1})) << exchange.what;
      answered += taken(store_, 1);
    }
    expected += exchange.answered;
  }
  EXPECT_EQ(answered, expected);
  TorchStore at_once;
  at_once.join(1);
  std::string all;
  for (const Exchange& exchange : kRecorded) all += exchange.sent;
  ASSERT_TRUE(at_once.feed(1, bytes_of(all)));
  EXPECT_EQ(taken(at_once, 1), expected);
}

const std::string kKeyA =
                      "0100000000000000"
                      "61",
                  kKeyB =
                      "0100000000000000"
                      "62";
const std::string kOne =
    "0100000000000000"
    "31";

TEST_F(TorchStoreTest, WaitersAreLetGoWhenTheLastKeyComes) {
  const auto waits = client(), sets = client();
  EXPECT_EQ(ask(waits,
                "06"
                "0200000000000000" +
                    kKeyA + kKeyB),
            "");
  EXPECT_EQ(ask(sets, "01" + kKeyA + kOne), "");
  EXPECT_EQ(taken(store_, waits), "");
  store_.take_answered();
  EXPECT_EQ(ask(sets, "04" + kKeyB + "0700000000000000"), "0700000000000000");
  EXPECT_THAT(store_.take_answered(), UnorderedElementsAre(sets, waits));
  EXPECT_EQ(taken(store_, waits), "00");
}

TEST_F(TorchStoreTest, APushLetsOneGo) {
  const auto first = client(), second = client(), pushes = client();
  for (const auto waits : {first, second})
    EXPECT_EQ(ask(waits,
                  "06"
                  "0100000000000000" +
                      kKeyA),
              "");
  ask(pushes, "0e" + kKeyA + kOne);
  EXPECT_EQ(taken(store_, first), "00");
  EXPECT_EQ(taken(store_, second), "");
  store_.leave(second);
  ask(pushes, "0e" + kKeyA + kOne);
  EXPECT_EQ(ask(pushes, "10" + kKeyA), "0200000000000000");
}

TEST_F(TorchStoreTest, ABarrierWaitsForAllAndCanBeEnteredAgain) {
  const auto first = client(), second = client(), third = client();
  const std::string two = "12" + kKeyA + "0200000000000000";
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ask(first, two), "");
    EXPECT_EQ(ask(first, "0c"), "01") << "it has given up";
    EXPECT_EQ(ask(second, two), "");
    store_.leave(second);
    store_.join(second);
    ask(second, kHello);
    EXPECT_EQ(ask(third, two), "");
    EXPECT_EQ(ask(second, two), "00");
    EXPECT_EQ(taken(store_, third), "00");
  }
}

TEST_F(TorchStoreTest, AllThatIsCountedIsGivenBack) {
  const auto one = client(), two = client();
  ask(one, "01" + kKeyA + kOne + "0e" + kKeyB + kOne + "09" + kKeyA + kOne);
  ask(two,
      "06"
      "0100000000000000"
      "0100000000000000"
      "7a");
  ask(one, "12" + kKeyA + "0900000000000000");
  EXPECT_GT(store_.bytes(), 0u);
  store_.leave(one);
  store_.leave(two);
  store_.clear();
  EXPECT_EQ(store_.bytes(), 0u);
}

TEST_F(TorchStoreTest, WhatIsNoClientIsCutOff) {
  for (const std::string& hex : {std::string("474554202f20"), std::string("00cef7853d"), std::string("01"),
                                 kHello + "ff", kHello + "13",
                                 kHello + "01"
                                          "ffffffffffffffff",
                                 kHello + "01"
                                          "0120000000000000",
                                 kHello + "06"
                                          "0000000100000000",
                                 kHello + "01" + kKeyA + "0100800000000000"}) {
    store_.join(++last_);
    EXPECT_FALSE(store_.feed(last_, bytes_of(hex))) << hex;
    store_.leave(last_);
  }
  const auto adds = client();
  ask(adds, "01" + kKeyA +
                "0200000000000000"
                "3178");
  EXPECT_FALSE(store_.feed(adds, bytes_of("04" + kKeyA + "0100000000000000"))) << "to '1x'";
  store_.leave(adds);
  EXPECT_EQ(ask(client(), "03" + kKeyA),
            "0200000000000000"
            "3178")
      << "others are served";
}

TEST_F(TorchStoreTest, RandomBytesDoNoHarm) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    store_.join(++last_);
    std::string bytes = round % 2 == 0 ? bytes_of(kHello) : "";
    const std::size_t size = random() % 64;
    for (std::size_t i = 0; i < size; ++i)
      bytes += static_cast<char>(random() % 3 == 0 ? random() % 20 : random() % 2);
    static_cast<void>(store_.feed(last_, bytes));
    store_.leave(last_);
  }
  store_.clear();
  EXPECT_EQ(store_.bytes(), 0u);
}

TEST_F(TorchStoreTest, MemoryIsBounded) {
  TorchStore small({.message_bytes = 2000, .reply_bytes = 1000, .kept_bytes = 4000, .buffer_bytes = 8000});
  const auto greet = [&](TorchStore::ClientId id) {
    small.join(id);
    ASSERT_TRUE(small.feed(id, bytes_of(kHello)));
  };
  greet(1);
  const std::string value = "e803000000000000" + hex_of(std::string(1000, 'x'));
  bool served = true;
  for (char key = 'a'; served && key <= 'z'; ++key)
    served = small.feed(1, bytes_of("01"
                                    "0100000000000000" +
                                    hex_of({&key, 1}) + value));
  EXPECT_FALSE(served) << "26 values of 1000 bytes";
  small.leave(1);
  // One that asks and does not take what it gets is not served until it does.
  greet(2);
  const std::string gets = bytes_of("03" + kKeyA);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(small.feed(2, gets));
  EXPECT_TRUE(small.is_full(2));
  EXPECT_LT(small.replies(2).size(), 2100u);
  std::size_t total = 0;
  while (!small.replies(2).empty()) {
    total += 100;
    ASSERT_TRUE(small.took(2, std::min<std::size_t>(100, small.replies(2).size())));
  }
  EXPECT_GE(total, 20 * 1000u);
  // A message without an end.
  EXPECT_FALSE(small.feed(2, bytes_of("0b"
                                      "0001000000000000" +
                                      kKeyA + value + kKeyA + value + kKeyA + value)));
}

}  // namespace
}  // namespace dtrain::launcher
