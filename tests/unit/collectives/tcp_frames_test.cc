// What seals messages on their way: frames come back whole, and nothing else is ever let through; ranks prove
// who they are, and nobody else does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "collectives/tcp/handshake.h"
#include "runtime/base/error.h"

namespace dtrain::tcp {
namespace {

constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

std::vector<std::byte> bytes(std::size_t count, int seed = 0) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::byte>((i * 131 + i / 1000 + static_cast<std::size_t>(seed)) & 0xff);
  return all;
}

void append(std::vector<std::byte>& stream, const SealedFrame& frame) {
  stream.insert(stream.end(), frame.header.begin(), frame.header.end());
  stream.insert(stream.end(), frame.body.begin(), frame.body.end());
  stream.insert(stream.end(), frame.mac.begin(), frame.mac.begin() + static_cast<long>(frame.mac_bytes));
}

std::vector<std::byte> sealed(FrameSealer& sealer, std::uint64_t tag, std::span<const std::byte> body) {
  std::vector<std::byte> stream;
  append(stream, sealer.seal(tag, body));
  return stream;
}

class TcpFrames : public testing::TestWithParam<Protection> {
 protected:
  FrameSealer sealer_{GetParam(), kKey};
  FrameOpener opener_{GetParam(), kKey};
  Frame frame_;
};

class ProtectedFrames : public TcpFrames {};

TEST_P(TcpFrames, ComeBackWholeAndInOrder) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{15}, std::size_t{4096}, kMostBodyBytes}) {
    const auto body = bytes(size, 3);
    auto stream = sealed(sealer_, size * 7, body);
    for (const std::size_t part : {std::size_t{0}, std::size_t{3}, std::size_t{12}, stream.size() - 1})
      EXPECT_EQ(opener_.open(std::span(stream).first(part), frame_), FrameOpener::Result::need_more);
    ASSERT_EQ(opener_.open(stream, frame_), FrameOpener::Result::frame);
    EXPECT_EQ(frame_.tag, size * 7);
    EXPECT_EQ(frame_.bytes, stream.size());
    EXPECT_TRUE(std::equal(frame_.body.begin(), frame_.body.end(), body.begin(), body.end()));
  }
}

TEST_P(TcpFrames, HaveAPossibleLength) {
  for (const std::uint32_t length : {0U, static_cast<std::uint32_t>(kMostBodyBytes) + 1, 0xffffffffU}) {
    FrameOpener opener(GetParam(), kKey);
    std::vector<std::byte> stream(64);
    std::memcpy(stream.data(), &length, sizeof length);
    EXPECT_EQ(opener.open(stream, frame_), FrameOpener::Result::bad) << length;
    EXPECT_EQ(opener.open(stream, frame_), FrameOpener::Result::bad) << "for good";
  }
}

TEST_P(ProtectedFrames, NoFlippedBitIsLetThrough) {
  const auto stream = sealed(sealer_, 5, bytes(20));
  for (std::size_t bit = 0; bit < stream.size() * 8; ++bit) {
    auto changed = stream;
    changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    FrameOpener opener(GetParam(), kKey);
    EXPECT_NE(opener.open(changed, frame_), FrameOpener::Result::frame) << "bit " << bit;
  }
}

TEST_P(ProtectedFrames, NoFrameIsReplayedReorderedOrLeftOut) {
  const auto body = bytes(100);
  auto first = sealed(sealer_, 1, body), second = sealed(sealer_, 1, body), third = sealed(sealer_, 1, body);
  EXPECT_NE(first, second) << "equal bodies have different MACs";
  const auto second_copy = second;
  ASSERT_EQ(opener_.open(first, frame_), FrameOpener::Result::frame);
  {
    FrameOpener early(GetParam(), kKey);
    EXPECT_EQ(early.open(second, frame_), FrameOpener::Result::bad) << "reordered";
  }
  second = second_copy;
  ASSERT_EQ(opener_.open(second, frame_), FrameOpener::Result::frame);
  second = second_copy;
  EXPECT_EQ(opener_.open(second, frame_), FrameOpener::Result::bad) << "replayed";
  EXPECT_EQ(opener_.open(third, frame_), FrameOpener::Result::bad) << "after what is bad nothing is good";
}

TEST_P(ProtectedFrames, AnotherKeyOpensNothing) {
  std::string other(kKey);
  other.back() = 'x';
  FrameOpener opener(GetParam(), other);
  auto stream = sealed(sealer_, 1, bytes(100));
  EXPECT_EQ(opener.open(stream, frame_), FrameOpener::Result::bad);
}

INSTANTIATE_TEST_SUITE_P(, TcpFrames,
                         testing::Values(Protection::none, Protection::authenticate, Protection::encrypt),
                         [](const auto& one) { return std::string(name_of(one.param)); });
INSTANTIATE_TEST_SUITE_P(, ProtectedFrames, testing::Values(Protection::authenticate, Protection::encrypt),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST(EncryptedFrames, ShowNothingOfTheirBodies) {
  const std::vector<std::byte> body(4096, std::byte{'A'});
  FrameSealer encrypts(Protection::encrypt, kKey), signs(Protection::authenticate, kKey);
  const auto runs_of_body = [](const std::vector<std::byte>& stream) {
    const std::vector<std::byte> run(8, std::byte{'A'});
    return std::search(stream.begin(), stream.end(), run.begin(), run.end()) != stream.end();
  };
  EXPECT_FALSE(runs_of_body(sealed(encrypts, 1, body)));
  EXPECT_TRUE(runs_of_body(sealed(signs, 1, body)));
}

TEST(ProtectionNames, AreThree) {
  for (const Protection one : {Protection::none, Protection::authenticate, Protection::encrypt})
    EXPECT_EQ(protection_named(name_of(one), "X"), one);
  EXPECT_THROW(protection_named("tls", "X"), UsageError);
}

// A conversation between both ends, as an observer would have recorded it.
struct Talk {
  std::string to_host, to_caller;
};

class Handshakes : public testing::Test {
 protected:
  static Purpose purpose() { return {"tcp/world/1", 2, 0, Protection::authenticate}; }
  static Digest secret(std::string_view token = "token", std::string_view group = "tcp/world/1",
                       std::string_view nonce = "nonce") {
    return link_secret(token, group, nonce);
  }
  static Purpose host_purpose(Protection protection = Protection::authenticate) {
    return {"tcp/world/1", 0, 0, protection};
  }

  static Talk shake(Initiator& initiator, Responder& responder) {
    Talk talk;
    std::string answer;
    talk.to_host = initiator.hello();
    responder.feed(initiator.hello(), answer);
    talk.to_caller = answer;
    while (!answer.empty() && initiator.wants() > 0) {
      std::string proof;
      const std::string part = answer.substr(0, initiator.wants());
      initiator.feed(part, proof);
      answer.erase(0, part.size());
      if (proof.empty()) continue;
      responder.feed(proof, answer);
      talk.to_host += proof;
      talk.to_caller = answer;
    }
    EXPECT_TRUE(answer.empty() || initiator.state() == Initiator::State::failed);
    return talk;
  }
};

TEST_F(Handshakes, BothEndsHoldTheSameKeys) {
  const Digest key = secret();
  Initiator initiator(key, purpose());
  Responder responder(key, host_purpose(), 3);
  shake(initiator, responder);
  ASSERT_EQ(initiator.state(), Initiator::State::accepted) << initiator.reason();
  ASSERT_EQ(responder.state(), Responder::State::accepted) << responder.reason();
  EXPECT_EQ(responder.from(), 2);
  Connection out = initiator.connect(UniqueFd()), in = responder.connect(UniqueFd());
  const auto body = bytes(10);
  Frame frame;
  auto there = sealed(out.sealer, 1, body);
  EXPECT_EQ(in.opener.open(there, frame), FrameOpener::Result::frame);
  auto back = sealed(in.sealer, 1, body);
  const auto reflected = back;
  EXPECT_EQ(out.opener.open(back, frame), FrameOpener::Result::frame);
  auto copy = reflected;
  EXPECT_EQ(in.opener.open(copy, frame), FrameOpener::Result::bad) << "each direction has its own key";
}

TEST_F(Handshakes, NeitherEndBelievesAnotherSecret) {
  for (const Digest& other : {secret("another token"), secret("token", "tcp/world/2"),
                              secret("token", "tcp/world/1", "another nonce"), secret("")}) {
    const Digest key = secret();
    Initiator initiator(other, purpose());
    Responder responder(key, host_purpose(), 3);
    shake(initiator, responder);
    EXPECT_EQ(initiator.state(), Initiator::State::failed);
    EXPECT_NE(responder.state(), Responder::State::accepted);
    std::string out;
    responder.feed(std::string(Digest::kBytes, 'x'), out);
    EXPECT_EQ(responder.state(), Responder::State::refused);
    EXPECT_TRUE(out.empty());
  }
}

TEST_F(Handshakes, ARecordingOpensNoDoor) {
  const Digest key = secret();
  Initiator initiator(key, purpose());
  Responder first(key, host_purpose(), 3), second(key, host_purpose(), 3);
  const Talk talk = shake(initiator, first);
  ASSERT_EQ(first.state(), Responder::State::accepted);
  std::string out;
  second.feed(talk.to_host, out);
  EXPECT_EQ(second.state(), Responder::State::refused);
}

TEST_F(Handshakes, ARankComesWhereItBelongs) {
  const Digest key = secret();
  const auto meets = [&](Purpose from, int size) {
    Initiator initiator(key, std::move(from));
    Responder responder(key, host_purpose(), size);
    shake(initiator, responder);
    return responder.state() == Responder::State::accepted;
  };
  EXPECT_TRUE(meets(purpose(), 3));
  EXPECT_FALSE(meets(purpose(), 2)) << "no such rank";
  EXPECT_FALSE(meets({"tcp/world/1", 0, 0, Protection::authenticate}, 3)) << "itself";
  EXPECT_FALSE(meets({"tcp/world/1", 2, 1, Protection::authenticate}, 3)) << "meant for another rank";
  EXPECT_FALSE(meets({"tcp/world/1", 2, 0, Protection::none}, 3)) << "another protection";
}

TEST_F(Handshakes, AProofIsFollowedByNothing) {
  const Digest key = secret();
  Initiator initiator(key, purpose());
  Responder responder(key, host_purpose(), 3);
  std::string challenge, proof, out;
  responder.feed(initiator.hello(), challenge);
  initiator.feed(challenge, proof);
  responder.feed(proof + "x", out);
  EXPECT_EQ(responder.state(), Responder::State::refused);
}

}  // namespace
}  // namespace dtrain::tcp
