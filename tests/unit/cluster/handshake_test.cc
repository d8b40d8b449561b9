// How two ends of a connection prove themselves, as pure functions: everything an attacker may bend, and what
// each end says about the other.
#include "cluster/net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace dtrain::net {
namespace {

using testing::HasSubstr;

constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";
const Identity kIdentity{"job 7", "worker", 3};

std::string anyone(const Identity&) { return {}; }

// Both ends, whose secrets may differ, and what they have said.
struct Talk {
  explicit Talk(std::string_view listening = kSecret, std::string_view connecting = kSecret,
                const Identity& identity = kIdentity, Admit admits = anyone)
      : key(listening),
        admit(std::move(admits)),
        responder(key, Protection::authenticate, admit),
        initiator(connecting, identity) {
    responder.feed(initiator.hello(), challenge);
    initiator.feed(challenge, proof);
    if (!proof.empty()) responder.feed(proof, verdict);
    for (std::string_view rest = verdict; !rest.empty() && initiator.wants() > 0;) {
      const std::string_view part = rest.substr(0, initiator.wants());
      initiator.feed(part, proof);
      rest.remove_prefix(part.size());
    }
  }
  bool accepted() const {
    return initiator.state() == Initiator::State::accepted && responder.state() == Responder::State::accepted;
  }

  MacKey key;
  Admit admit;
  Responder responder;
  Initiator initiator;
  std::string challenge, proof, verdict;
};

TEST(Handshake, BothEndsAgreeOnIdentity) {
  for (const std::string_view secret : {kSecret, std::string_view()}) {
    const Talk talk(secret, secret);
    ASSERT_TRUE(talk.accepted()) << talk.responder.reason() << talk.initiator.reason();
    EXPECT_EQ(talk.responder.identity().service, "job 7");
    EXPECT_EQ(talk.responder.identity().role, "worker");
    EXPECT_EQ(talk.responder.identity().rank, 3);
  }
}

TEST(Handshake, NeitherEndBelievesAnotherSecret) {
  for (const std::string_view other : {std::string_view("another"), std::string_view()}) {
    Talk talk(kSecret, other);
    EXPECT_EQ(talk.initiator.state(), Initiator::State::failed);
    EXPECT_THAT(talk.initiator.reason(), HasSubstr("token"));
    EXPECT_TRUE(talk.proof.empty()) << "nothing is proved to a stranger";
    talk.responder.feed(std::string(Digest::kBytes, 'x'), talk.verdict);
    EXPECT_EQ(talk.responder.state(), Responder::State::refused);
    EXPECT_TRUE(talk.verdict.empty()) << "a stranger is told nothing";
  }
}

TEST(Handshake, ARecordingDoesNotWorkAgain) {
  const Talk honest;
  Responder again(honest.key, Protection::authenticate, honest.admit);
  std::string out;
  again.feed(honest.initiator.hello(), out);
  again.feed(honest.proof, out);
  EXPECT_EQ(again.state(), Responder::State::refused);
}

TEST(Handshake, WhoIsNotAdmittedHearsWhy) {
  const Talk talk(kSecret, kSecret, kIdentity, [](const Identity& peer) {
    return "the store serves job '8', not '" + peer.service + "'";
  });
  EXPECT_EQ(talk.responder.state(), Responder::State::refused);
  EXPECT_EQ(talk.initiator.state(), Initiator::State::failed);
  EXPECT_THAT(talk.initiator.reason(), HasSubstr("the store serves job '8', not 'job 7'"));
  const Talk long_reason(kSecret, kSecret, kIdentity, [](const Identity&) { return std::string(5000, 'x'); });
  EXPECT_THAT(long_reason.initiator.reason(), HasSubstr("xxx"));
}

TEST(Handshake, EndsThatProtectTheirMessagesDifferentlyDoNotMeet) {
  Identity identity = kIdentity;
  identity.protection = Protection::none;
  const Talk talk(kSecret, kSecret, identity);
  EXPECT_EQ(talk.responder.state(), Responder::State::refused);
  EXPECT_THAT(talk.initiator.reason(), testing::AllOf(HasSubstr("'none'"), HasSubstr("'authenticate'")));
}

TEST(Handshake, SplitAtEveryByte) {
  const MacKey key(kSecret);
  const Admit admit = anyone;
  const Nonce nonce{1};
  Initiator initiator(kSecret, kIdentity);
  Responder first(key, Protection::authenticate, admit, nonce);
  std::string challenge, proof, verdict;
  first.feed(initiator.hello(), challenge);
  initiator.feed(challenge, proof);
  first.feed(proof, verdict);
  const std::string sent = initiator.hello() + proof;
  for (std::size_t cut = 0; cut <= sent.size(); ++cut) {
    Responder responder(key, Protection::authenticate, admit, nonce);
    std::string out;
    responder.feed(std::string_view(sent).substr(0, cut), out);
    responder.feed(std::string_view(sent).substr(cut), out);
    EXPECT_EQ(responder.state(), Responder::State::accepted) << cut;
    EXPECT_EQ(out, challenge + verdict) << cut;
  }
  for (const char byte : verdict) initiator.feed({&byte, 1}, proof);
  EXPECT_EQ(initiator.state(), Initiator::State::accepted);
  EXPECT_EQ(initiator.wants(), 0U) << "what follows are frames";
}

TEST(Handshake, AProofIsFollowedByNothing) {
  Talk talk;
  Responder responder(talk.key, Protection::authenticate, talk.admit);
  Initiator initiator(kSecret, kIdentity);
  std::string challenge, proof, out;
  responder.feed(initiator.hello(), challenge);
  initiator.feed(challenge, proof);
  responder.feed(proof + "x", out);
  EXPECT_EQ(responder.state(), Responder::State::refused);
}

// Bends each bit of what one end hears; the other end's nonce is fixed, so that only the bit differs.
TEST(Handshake, EveryFlippedBitEndsIt) {
  const MacKey key(kSecret);
  const Admit admit = anyone;
  const Nonce ours{1}, theirs{2};
  Responder honest(key, Protection::authenticate, admit, ours);
  Initiator caller(kSecret, kIdentity, theirs);
  std::string challenge, proof, verdict;
  honest.feed(caller.hello(), challenge);
  caller.feed(challenge, proof);
  honest.feed(proof, verdict);
  const auto bent = [](std::string bytes, std::size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    return bytes;
  };
  const std::string sent = caller.hello() + proof;
  for (std::size_t bit = 0; bit < sent.size() * 8; ++bit) {
    Responder responder(key, Protection::authenticate, admit, ours);
    std::string out;
    responder.feed(bent(sent, bit), out);
    EXPECT_NE(responder.state(), Responder::State::accepted) << bit;
  }
  for (std::size_t bit = 0; bit < challenge.size() * 8; ++bit) {
    Initiator initiator(kSecret, kIdentity, theirs);
    std::string out;
    initiator.feed(bent(challenge, bit), out);
    EXPECT_EQ(initiator.state(), Initiator::State::failed) << bit;
    EXPECT_TRUE(out.empty()) << bit;
  }
  for (std::size_t bit = 0; bit < verdict.size() * 8; ++bit) {
    Initiator initiator(kSecret, kIdentity, theirs);
    std::string out;
    initiator.feed(challenge, out);
    initiator.feed(bent(verdict, bit), out);
    EXPECT_NE(initiator.state(), Initiator::State::accepted) << bit;
  }
}

TEST(Handshake, HelloIsBounded) {
  const Identity longest{std::string(kMaxServiceBytes, 'j'), std::string(kMaxRoleBytes, 'r'), 1};
  EXPECT_LE(Initiator(kSecret, longest).hello().size(), kMaxHelloBytes);
  EXPECT_TRUE(Talk(kSecret, kSecret, longest).accepted());
  EXPECT_THROW(Initiator(kSecret, {longest.service + "j", "", 1}), UsageError);
  const MacKey key(kSecret);
  const Admit admit = anyone;
  for (const std::string_view start : {std::string_view("\xff\xff", 2), std::string_view("\xff\x00", 2),
                                       std::string_view("\0\0", 2), std::string_view("GET / HTTP/1.1\r\n")}) {
    Responder responder(key, Protection::authenticate, admit);
    std::string out;
    responder.feed(start, out);
    responder.feed(std::string(1 << 16, 'x'), out);
    EXPECT_EQ(responder.state(), Responder::State::refused);
    EXPECT_TRUE(out.empty());
  }
}

// As the version before this one did it: its hello began alike, and it read a challenge of this length.
TEST(Handshake, VersionsThatDifferAreNamedWhereTheConnectionWasAskedFor) {
  const MacKey key(kSecret);
  const Admit admit = anyone;
  Initiator initiator(kSecret, kIdentity);
  std::string hello = initiator.hello();
  hello[6] = 1;  // after a length of 2 bytes and a magic number of 4
  Responder responder(key, Protection::authenticate, admit);
  std::string challenge, proof;
  responder.feed(hello, challenge);
  EXPECT_EQ(responder.state(), Responder::State::refused);
  EXPECT_THAT(responder.reason(), HasSubstr("version"));
  ASSERT_EQ(challenge.size(), std::size_t{70}) << "what another version waits for";
  EXPECT_EQ(challenge.substr(0, 6), std::string("DTST\x02\x00", 6));
  challenge[4] = 1;
  initiator.feed(challenge, proof);
  EXPECT_THAT(initiator.reason(), testing::AllOf(HasSubstr("version 1,"), HasSubstr("this program 2")));
}

TEST(Handshake, EachDirectionOfEachConnectionHasItsOwnKey) {
  const Talk one, two;
  const auto sealed = [](SecureStream stream) {
    const SealedFrame frame = stream.seal(1, std::as_bytes(std::span("body", 4)));
    return frame.mac;
  };
  EXPECT_NE(sealed(one.initiator.stream(UniqueFd())), sealed(one.responder.stream(UniqueFd())));
  EXPECT_NE(sealed(one.initiator.stream(UniqueFd())), sealed(two.initiator.stream(UniqueFd())));
}

}  // namespace
}  // namespace dtrain::net
