// Messages over connections, between ranks that live in this process: sizes, order, who is lost, and what
// becomes of bytes that nobody signed.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "collectives/tcp/tcp_progress_engine.h"
#include "runtime/base/check.h"

namespace dtrain::tcp {
namespace {

using net::kMostBodyBytes;

constexpr std::string_view kUpKey = "0123456789abcdef0123456789abcdef",
                           kDownKey = "fedcba9876543210fedcba9876543210";

// Gives up a wait that should have ended.
class Guard final : public p2p::Watchdog {
 public:
  void tick() override {
    if (deadline_.expired()) throw std::runtime_error("waited for too long");
  }

 private:
  Deadline deadline_ = Deadline::after(std::chrono::seconds(20));
};

// A watchdog whose wait ends at its first tick.
class AtOnce final : public p2p::Watchdog {
 public:
  struct Ticked {};
  void tick() override { throw Ticked{}; }
};

std::vector<std::byte> bytes(std::size_t count, int seed = 0) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::byte>((i * 131 + i / 1000 + static_cast<std::size_t>(seed)) & 0xff);
  return all;
}

std::array<UniqueFd, 2> socket_pair() {
  int ends[2];
  check(Sys{::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)}, "socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Ranks 0 and 1; what 0 says comes to 1 through `wire`, when a test puts something between them.
struct Two {
  explicit Two(Protection protection, bool with_wire = false) {
    auto ends = socket_pair();
    UniqueFd one_end = std::move(ends[1]);
    if (with_wire) {
      auto more = socket_pair();
      from_zero = std::move(one_end);
      to_one = std::move(more[0]);
      one_end = std::move(more[1]);
    }
    std::vector<std::optional<net::SecureStream>> of_zero(2), of_one(2);
    of_zero[1].emplace(std::move(ends[0]), net::FrameSealer(protection, kUpKey),
                       net::FrameOpener(protection, kDownKey));
    of_one[0].emplace(std::move(one_end), net::FrameSealer(protection, kDownKey),
                      net::FrameOpener(protection, kUpKey));
    zero.emplace(0, std::move(of_zero));
    one.emplace(1, std::move(of_one));
  }
  std::optional<TcpProgressEngine> zero, one;
  UniqueFd from_zero, to_one;
  Guard guard;
  int sends = 0, receives = 0;
};

class TcpMessages : public testing::TestWithParam<Protection> {};

TEST_P(TcpMessages, OfAnySizeArriveWhole) {
  Two two(GetParam());
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, kMostBodyBytes - 1, kMostBodyBytes,
                                 kMostBodyBytes + 1, 40 * kMostBodyBytes + 17}) {
    const auto sent = bytes(size, 3);
    std::vector<std::byte> got(size);
    std::thread other([&] {
      two.one->receive(0, 8, got.data(), size, two.receives);
      two.one->wait(two.receives, two.guard);
    });
    Guard guard;
    two.zero->send(1, 8, sent.data(), size, two.sends);
    two.zero->wait(two.sends, guard);
    other.join();
    EXPECT_EQ(got, sent) << size << " bytes";
  }
}

TEST_P(TcpMessages, CrossWithoutWaitingForEachOther) {
  Two two(GetParam());
  const std::size_t size = 100 * kMostBodyBytes;  // far more than the sockets hold
  const auto zeros = bytes(size, 1), ones = bytes(size, 2);
  std::vector<std::byte> at_zero(size), at_one(size);
  const auto swap = [&](TcpProgressEngine& engine, int peer, const auto& out, auto& in) {
    int sends = 0, receives = 0;
    Guard guard;
    engine.receive(peer, 4, in.data(), size, receives);
    engine.send(peer, 4, out.data(), size, sends);
    engine.wait(sends, guard);
    engine.wait(receives, guard);
  };
  std::thread other([&] { swap(*two.one, 0, ones, at_one); });
  swap(*two.zero, 1, zeros, at_zero);
  other.join();
  EXPECT_EQ(at_zero, ones);
  EXPECT_EQ(at_one, zeros);
}

INSTANTIATE_TEST_SUITE_P(, TcpMessages,
                         testing::Values(Protection::none, Protection::authenticate, Protection::encrypt),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST(TcpProgressEngine, AMessageWaitsForItsReceive) {
  Two two(Protection::authenticate);
  const auto first = bytes(10, 1), second = bytes(10, 2);
  two.zero->send(1, 100, first.data(), first.size(), two.sends);
  two.zero->send(1, 200, second.data(), second.size(), two.sends);
  std::vector<std::byte> got(10), later(10);
  AtOnce impatient;
  two.one->receive(0, 200, later.data(), later.size(), two.receives);
  EXPECT_THROW(two.one->wait(two.receives, impatient), AtOnce::Ticked) << "the first comes first";
  two.one->receive(0, 100, got.data(), got.size(), two.receives);
  two.one->wait(two.receives, two.guard);
  EXPECT_EQ(got, first);
  EXPECT_EQ(later, second);
}

TEST(TcpProgressEngine, TakesAnOfferOfAnyone) {
  Two two(Protection::authenticate);
  const std::byte announced{};
  two.zero->send(1, 9, &announced, 1, two.sends);
  EXPECT_EQ(two.one->take_any(9, two.guard), 0);
}

TEST(TcpProgressEngine, AClosedPeerIsLost) {
  Two two(Protection::authenticate);
  EXPECT_TRUE(two.one->lost_peers().empty());
  std::byte got{};
  two.one->receive(0, 1, &got, 1, two.receives);
  two.zero->close();
  EXPECT_EQ(two.one->lost_peers(), std::vector<int>{0});
  EXPECT_THROW(two.one->wait(two.receives, two.guard), p2p::LinkLost);
  EXPECT_THROW(two.zero->send(1, 1, &got, 1, two.sends), p2p::LinkLost);
}

TEST(TcpProgressEngine, ALongerMessageThanExpectedIsRefused) {
  Two two(Protection::authenticate);
  const auto sent = bytes(100);
  std::vector<std::byte> got(50);
  two.zero->send(1, 1, sent.data(), sent.size(), two.sends);
  two.one->receive(0, 1, got.data(), got.size(), two.receives);
  EXPECT_THROW(two.one->wait(two.receives, two.guard), p2p::LinkLost);
  EXPECT_EQ(got, std::vector<std::byte>(50)) << "nothing of it was written";
}

TEST(TcpProgressEngine, WhatIsGivenUpHalfWayEndsTheLink) {
  Two two(Protection::authenticate);
  const auto sent = bytes(100 * kMostBodyBytes);
  two.zero->send(1, 1, sent.data(), sent.size(), two.sends);
  ASSERT_EQ(two.sends, 1) << "more than a socket holds";
  two.zero->forget(two.sends);
  EXPECT_EQ(two.one->lost_peers(), std::vector<int>{0}) << "the rest can never come";
}

// Reads all that rank 0 has said so far.
std::vector<std::byte> overhear(int fd) {
  std::vector<std::byte> heard(1 << 20);
  const ssize_t got = ::recv(fd, heard.data(), heard.size(), 0);
  heard.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return heard;
}

// What somebody on the wire may do to the three frames of a message.
struct Attack {
  const char* name;
  void (*change)(std::vector<std::byte>& stream);
};

constexpr std::size_t kFrame = net::kMostFrameBytes;

class OnTheWire : public testing::TestWithParam<Attack> {};

TEST_P(OnTheWire, NoByteThatNobodySignedReachesATensor) {
  for (const Protection protection : {Protection::authenticate, Protection::encrypt}) {
    Two two(protection, true);
    const auto sent = bytes(3 * kMostBodyBytes, 7);
    two.zero->send(1, 1, sent.data(), sent.size(), two.sends);
    std::vector<std::byte> stream;
    Guard guard;
    while (stream.size() < 3 * kFrame) {
      const auto heard = overhear(two.from_zero.get());
      stream.insert(stream.end(), heard.begin(), heard.end());
      AtOnce once;
      try {
        two.zero->wait(two.sends, once);
      } catch (const AtOnce::Ticked&) {
      }
      guard.tick();
    }
    GetParam().change(stream);
    std::thread wire([&] {
      std::size_t said = 0;
      while (said < stream.size()) {
        const ssize_t sent_now =
            ::send(two.to_one.get(), stream.data() + said, stream.size() - said, MSG_NOSIGNAL);
        if (sent_now > 0) said += static_cast<std::size_t>(sent_now);
        if (sent_now < 0 && errno != EAGAIN) break;
      }
      ::shutdown(two.to_one.get(), SHUT_WR);
    });
    std::vector<std::byte> got(sent.size());
    two.one->receive(0, 1, got.data(), got.size(), two.receives);
    EXPECT_THROW(two.one->wait(two.receives, guard), p2p::LinkLost);
    two.one->close();
    wire.join();
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != sent[i]) {
        ASSERT_EQ(got[i], std::byte{0}) << "byte " << i << " was written and is not what was sent";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , OnTheWire,
    testing::Values(Attack{"flips_a_bit", [](auto& stream) { stream[kFrame + 1000] ^= std::byte{4}; }},
                    Attack{"changes_a_tag", [](auto& stream) { stream[kFrame + 5] ^= std::byte{1}; }},
                    Attack{"changes_a_length", [](auto& stream) { stream[kFrame] ^= std::byte{1}; }},
                    Attack{"changes_a_mac", [](auto& stream) { stream[2 * kFrame - 1] ^= std::byte{1}; }},
                    Attack{"swaps_frames",
                           [](auto& stream) {
                             std::swap_ranges(stream.begin(), stream.begin() + kFrame,
                                              stream.begin() + kFrame);
                           }},
                    Attack{"replays_a_frame",
                           [](auto& stream) {
                             std::copy(stream.begin(), stream.begin() + kFrame, stream.begin() + kFrame);
                           }},
                    Attack{"leaves_a_frame_out",
                           [](auto& stream) { stream.erase(stream.begin(), stream.begin() + kFrame); }},
                    Attack{"cuts_the_end_off", [](auto& stream) { stream.resize(2 * kFrame + 100); }},
                    Attack{"puts_garbage_first",
                           [](auto& stream) { stream.insert(stream.begin(), 100, std::byte{0x2a}); }}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace dtrain::tcp
