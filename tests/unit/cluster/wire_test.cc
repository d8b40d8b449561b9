// The store's frames, messages and handshake as pure functions: known answers, and everything an attacker may
// bend.
#include "cluster/store/store_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cluster/store/store_handshake.h"
#include "runtime/base/error.h"
#include "tests/fuzz/targets.h"

namespace dtrain::wire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Result = FrameReader::Result;

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

// Two frames, "one" and "two".
std::string two_frames(std::string_view key = "key") {
  FrameWriter writer{MacKey(key)};
  std::string bytes;
  writer.append(bytes, "one");
  writer.append(bytes, "two");
  return bytes;
}

std::vector<std::string> read_all(FrameReader& reader, Result& end) {
  std::vector<std::string> frames;
  std::string_view payload;
  while ((end = reader.next(payload)) == Result::frame) frames.emplace_back(payload);
  return frames;
}

std::vector<std::string> read_all(std::string_view bytes, Result& end, std::string_view key = "key") {
  FrameReader reader{MacKey(key)};
  reader.feed(bytes);
  return read_all(reader, end);
}

TEST(Frames, SplitAtEveryByte) {
  const std::string bytes = two_frames();
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameReader reader{MacKey("key")};
    Result end;
    reader.feed(std::string_view(bytes).substr(0, cut));
    auto frames = read_all(reader, end);
    EXPECT_EQ(end, Result::need_more);
    reader.feed(std::string_view(bytes).substr(cut));
    for (auto& frame : read_all(reader, end)) frames.push_back(std::move(frame));
    EXPECT_THAT(frames, ElementsAre("one", "two")) << cut;
  }
}

TEST(Frames, EveryFlippedBitIsRefused) {
  const std::string good = two_frames();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    Result end;
    const auto frames = read_all(bytes, end);
    EXPECT_LT(frames.size(), 2U) << bit;
    const bool in_length = bit / 8 % (good.size() / 2) < 4;
    // A length made longer may leave the reader waiting for bytes that the MAC will then refuse.
    EXPECT_TRUE(end == Result::bad || in_length) << bit;
  }
}

TEST(Frames, ReplayedDroppedAndReorderedFramesAreRefused) {
  const std::string bytes = two_frames();
  const std::string one = bytes.substr(0, bytes.size() / 2), two = bytes.substr(bytes.size() / 2);
  Result end;
  EXPECT_THAT(read_all(one + one, end), ElementsAre("one"));
  EXPECT_EQ(end, Result::bad);
  EXPECT_TRUE(read_all(two, end).empty());
  EXPECT_EQ(end, Result::bad);
  EXPECT_THAT(read_all(one + two + two, end), ElementsAre("one", "two"));
  EXPECT_EQ(end, Result::bad);
}

TEST(Frames, OtherKeyIsRefused) {
  Result end;
  EXPECT_TRUE(read_all(two_frames("other"), end).empty());
  EXPECT_EQ(end, Result::bad);
}

TEST(Frames, TruncatedFrameIsNotHandedOut) {
  const std::string bytes = two_frames();
  Result end;
  EXPECT_THAT(read_all(bytes.substr(0, bytes.size() - 1), end), ElementsAre("one"));
  EXPECT_EQ(end, Result::need_more);
}

TEST(Frames, ImpossibleLengthIsRefusedFromTheHeaderAlone) {
  for (const std::uint64_t length :
       {std::uint64_t{kMaxPayloadBytes + 1}, std::uint64_t{0xffffffff}, std::uint64_t{1} << 63}) {
    std::string header;
    ByteWriter writer(header);
    writer.u64(length);  // 2^63 reads as length 0 and a wrong sequence number
    writer.u32(0);
    FrameReader reader{MacKey("key")};
    reader.feed(header);
    std::string_view payload;
    EXPECT_EQ(reader.next(payload), Result::bad) << length;
    reader.feed(std::string(1 << 16, 'x'));
    EXPECT_LE(reader.buffered_bytes(), header.size()) << "nothing is kept after a bad frame";
  }
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

constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";
const Identity kIdentity{"job 7", "worker", 3};

struct Shaken {
  ServerHandshake server;
  Answer answer;
  std::string hello;
};

// Runs a handshake whose two ends hold these secrets.
Shaken shake(std::string_view server_secret, std::string_view client_secret) {
  Shaken shaken{ServerHandshake(server_secret, make_nonce()), {}, make_hello(kIdentity, make_nonce())};
  std::string challenge, nothing;
  shaken.server.feed(shaken.hello, challenge);
  shaken.answer = answer_challenge(client_secret, shaken.hello, challenge);
  if (shaken.answer.error.empty()) shaken.server.feed(shaken.answer.proof, nothing);
  return shaken;
}

TEST(Handshake, BothEndsAgreeOnKeysAndIdentity) {
  for (const std::string_view secret : {kSecret, std::string_view()}) {
    const Shaken shaken = shake(secret, secret);
    ASSERT_EQ(shaken.server.state(), ServerHandshake::State::accepted) << shaken.server.reason();
    EXPECT_EQ(shaken.server.identity().job, "job 7");
    EXPECT_EQ(shaken.server.identity().role, "worker");
    EXPECT_EQ(shaken.server.identity().rank, 3);
    EXPECT_EQ(shaken.server.keys().to_server.bytes, shaken.answer.keys.to_server.bytes);
    EXPECT_EQ(shaken.server.keys().to_client.bytes, shaken.answer.keys.to_client.bytes);
    EXPECT_NE(shaken.answer.keys.to_server.bytes, shaken.answer.keys.to_client.bytes)
        << "each direction has its own key";
  }
  EXPECT_NE(shake(kSecret, kSecret).answer.keys.to_server.bytes,
            shake(kSecret, kSecret).answer.keys.to_server.bytes)
      << "each connection has its own keys";
}

TEST(Handshake, AClientSeesThatTheServerHoldsAnotherToken) {
  const Shaken shaken = shake(kSecret, "another");
  EXPECT_THAT(shaken.answer.error, HasSubstr("token"));
  EXPECT_TRUE(shaken.answer.proof.empty()) << "nothing is proved to a stranger";
}

TEST(Handshake, AServerRefusesAProofWithoutTheToken) {
  const Shaken honest = shake(kSecret, kSecret);
  ServerHandshake server(kSecret, make_nonce());
  std::string out;
  server.feed(honest.hello, out);
  server.feed(honest.answer.proof, out);
  EXPECT_EQ(server.state(), ServerHandshake::State::refused) << "a recorded handshake must not work again";
}

TEST(Handshake, SplitAtEveryByteAndFollowedByFrames) {
  const Nonce nonce{1};
  const std::string hello = make_hello(kIdentity, Nonce{2});
  ServerHandshake first(kSecret, nonce);
  std::string challenge;
  first.feed(hello, challenge);
  const std::string sent = hello + answer_challenge(kSecret, hello, challenge).proof + "frames";
  for (std::size_t cut = 0; cut <= sent.size(); ++cut) {
    ServerHandshake server(kSecret, nonce);
    std::string out;
    std::size_t taken = server.feed(std::string_view(sent).substr(0, cut), out);
    if (taken == cut) taken += server.feed(std::string_view(sent).substr(cut), out);
    EXPECT_EQ(server.state(), ServerHandshake::State::accepted) << cut;
    EXPECT_EQ(taken, sent.size() - 6) << cut;
    EXPECT_EQ(out, challenge) << cut;
  }
}

TEST(Handshake, EveryFlippedBitOfHelloChallengeOrProofEndsIt) {
  const Nonce nonce{1};
  const std::string hello = make_hello(kIdentity, Nonce{2});
  ServerHandshake honest(kSecret, nonce);
  std::string challenge;
  honest.feed(hello, challenge);
  const std::string proof = answer_challenge(kSecret, hello, challenge).proof;
  for (std::size_t bit = 0; bit < (hello.size() + proof.size()) * 8; ++bit) {
    std::string sent = hello + proof;
    sent[bit / 8] = static_cast<char>(sent[bit / 8] ^ (1 << (bit % 8)));
    ServerHandshake server(kSecret, nonce);
    std::string out;
    server.feed(sent, out);
    EXPECT_NE(server.state(), ServerHandshake::State::accepted) << bit;
  }
  for (std::size_t bit = 0; bit < challenge.size() * 8; ++bit) {
    std::string bent = challenge;
    bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(answer_challenge(kSecret, hello, bent).error.empty()) << bit;
  }
}

TEST(Handshake, HelloIsBounded) {
  EXPECT_LE(make_hello({std::string(kMaxJobBytes, 'j'), std::string(kMaxRoleBytes, 'r'), 1}, Nonce{}).size(),
            kMaxHelloBytes);
  EXPECT_THROW(make_hello({std::string(kMaxJobBytes + 1, 'j'), "", 1}, Nonce{}), UsageError);
  for (const std::string_view start : {std::string_view("\xff\xff", 2), std::string_view("\xff\x00", 2),
                                       std::string_view("\0\0", 2), std::string_view("GET / HTTP/1.1\r\n")}) {
    ServerHandshake server(kSecret, Nonce{});
    std::string out;
    server.feed(start, out);
    server.feed(std::string(1 << 16, 'x'), out);
    EXPECT_EQ(server.state(), ServerHandshake::State::refused);
    EXPECT_TRUE(out.empty());
  }
}

TEST(Handshake, VersionsThatDifferAreNamedOnTheClient) {
  std::string hello = make_hello(kIdentity, Nonce{});
  hello[6] = 9;  // length 2, magic 4, version
  ServerHandshake server(kSecret, Nonce{});
  std::string out;
  server.feed(hello, out);
  EXPECT_EQ(server.state(), ServerHandshake::State::refused);
  ASSERT_EQ(out.size(), kChallengeBytes);
  out[4] = 9;
  EXPECT_THAT(answer_challenge(kSecret, hello, out).error, HasSubstr("version 9"));
}

// The fuzz targets, on arbitrary bytes and on bent good ones.
TEST(Fuzz, FramesAndHandshakeKeepTheirPromises) {
  std::mt19937 random(20240102);
  const std::string seeds[] = {two_frames(), make_hello(kIdentity, Nonce{}),
                               encode(Request{.keys = {"k"}, .value = "v", .expected = "e"}),
                               encode(Response{1, Status::ok, "value"}), std::string(40, '\0')};
  for (int i = 0; i < 2000; ++i) {
    std::string input = seeds[random() % std::size(seeds)];
    for (std::uint32_t bends = random() % 4; bends > 0; --bends)
      input[random() % input.size()] = static_cast<char>(random());
    if (random() % 4 == 0) input.resize(random() % (input.size() + 1));
    fuzz::frames(input);
    fuzz::handshake(input);
  }
}

}  // namespace
}  // namespace dtrain::wire
