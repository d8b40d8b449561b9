// MACs and the store's messages as pure functions: known answers, and everything an attacker may bend.
#include "cluster/store/store_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cluster/net/handshake.h"
#include "cluster/net/mac.h"
#include "runtime/base/error.h"
#include "tests/fuzz/targets.h"

namespace dtrain::wire {
namespace {

using testing::ElementsAre;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

TEST(Mac, KnownAnswers) {
  // RFC 4231, test cases 1, 2 and 6; and the empty key over nothing.
  EXPECT_EQ(hex(MacKey(std::string(20, '\x0b')).sign({"Hi There"}).view()),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(MacKey("Jefe").sign({"what do ya want ", "for nothing?"}).view()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(MacKey(std::string(131, '\xaa'))
                    .sign({"Test Using Larger Than Block-Size Key - Hash Key First"})
                    .view()),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(MacKey("").sign({}).view()),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Mac, SameKeySignsManyTimes) {
  const MacKey key("key");
  const Digest first = key.sign({"a"});
  key.sign({"b"});
  EXPECT_EQ(key.sign({"a"}).bytes, first.bytes);
  EXPECT_TRUE(key.verify({"a"}, first.view()));
  EXPECT_FALSE(key.verify({"a"}, first.view().substr(1)));
  EXPECT_FALSE(key.verify({"b"}, first.view()));
}

TEST(Messages, RoundTrip) {
  Request request;
  request.op = Op::compare_set;
  request.id = 77;
  request.keys = {"key"};
  request.value = std::string("a\0b", 3);
  request.expected = "";
  request.delta = -5;
  const auto back = decode_request(encode(request));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->op, Op::compare_set);
  EXPECT_EQ(back->id, 77U);
  EXPECT_THAT(back->keys, ElementsAre("key"));
  EXPECT_EQ(back->value, request.value);
  EXPECT_EQ(back->expected, "");
  EXPECT_EQ(back->delta, -5);
  const auto response = decode_response(encode(Response{9, Status::full, "why"}));
  ASSERT_TRUE(response);
  EXPECT_EQ(response->value, "why");
}

TEST(Messages, MalformedOnesAreRefused) {
  Request request;
  request.keys = {"key"};
  const std::string good = encode(request);
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_request(good.substr(0, size))) << size;
  EXPECT_FALSE(decode_request(good + "x"));
  EXPECT_FALSE(decode_request("\x63" + good.substr(1)));
  request.keys = {"a", "b"};
  EXPECT_FALSE(decode_request(encode(request))) << "set has one key";
  request.op = Op::wait;
  EXPECT_TRUE(decode_request(encode(request)));
  request.keys.assign(kMaxWaitKeys + 1, "k");
  EXPECT_FALSE(decode_request(encode(request)));
  request.keys = {std::string(kMaxKeyBytes + 1, 'k')};
  EXPECT_FALSE(decode_request(encode(request)));
  // A length of nearly 2^32 in a short message.
  std::string huge = good;
  std::memset(huge.data() + 13, 0xff, 4);
  EXPECT_FALSE(decode_request(huge));
}

// The fuzz targets, on arbitrary bytes and on bent good ones.
TEST(Fuzz, FramesHandshakeAndMessagesKeepTheirPromises) {
  std::mt19937 random(20240102);
  const std::string seeds[] = {net::Initiator("", {"job 7", "worker", 3}).hello(),
                               encode(Request{.keys = {"k"}, .value = "v", .expected = "e"}),
                               encode(Response{1, Status::ok, "value"}), std::string(40, '\0')};
  for (int i = 0; i < 2000; ++i) {
    std::string input = seeds[random() % std::size(seeds)];
    for (std::uint32_t bends = random() % 4; bends > 0; --bends)
      input[random() % input.size()] = static_cast<char>(random());
    if (random() % 4 == 0) input.resize(random() % (input.size() + 1));
    fuzz::frames(input);
    fuzz::handshake(input);
    fuzz::store_messages(input);
  }
}

}  // namespace
}  // namespace dtrain::wire
