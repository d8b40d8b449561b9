// Connections from the first attempt to the last frame, both ends in one thread: who gets in, who is told why
// not, and what becomes of messages of any size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include "cluster/net/acceptor.h"
#include "cluster/net/connector.h"
#include "cluster/store/store_connection.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/check.h"

namespace dtrain::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(20)); }

Listener listen() { return listen_on("127.0.0.1", 0, soon()); }

std::string anyone(const Identity&) { return {}; }

std::array<UniqueFd, 2> socket_pair() {
  int ends[2];
  check(Sys{::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)}, "socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Serves both until the connector has its stream, is refused, or `deadline` passes.
struct Handshakes {
  std::optional<SecureStream> stream;
  std::vector<AcceptedPeer> accepted;

  void run(Connector& connector, Acceptor& acceptor, const Deadline& deadline = soon()) {
    while (!stream && connector.refusal().empty() && !deadline.expired()) {
      std::vector<pollfd> polled{{acceptor.fd(), POLLIN, 0}};
      connector.ask(polled);
      ::poll(polled.data(), polled.size(), 5);
      for (AcceptedPeer& peer : acceptor.serve()) accepted.push_back(std::move(peer));
      stream = connector.serve(polled);
    }
  }
};

UniqueFd stranger(const SocketAddress& address) {
  UniqueFd fd(static_cast<int>(check(Sys{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, "socket")));
  check(Sys{::connect(fd.get(), address.get(), address.length())}, "connect");
  return fd;
}

TEST(Connector, TriesEachAddressAndSpeaksWhenItIsLetIn) {
  Listener nobody = listen();
  const SocketAddress closed = nobody.address;
  nobody.fd.reset();
  Acceptor acceptor(listen(), "secret", Protection::authenticate, anyone);
  Connector connector({closed, acceptor.address()}, "secret", {"job", "worker", 4});
  Handshakes handshakes;
  handshakes.run(connector, acceptor);
  ASSERT_TRUE(handshakes.stream) << connector.why();
  ASSERT_EQ(handshakes.accepted.size(), 1U);
  EXPECT_EQ(handshakes.accepted[0].identity.rank, 4);
  EXPECT_EQ(acceptor.counts().authenticated, 1U);

  StoreConnection here(std::move(*handshakes.stream)), there(std::move(handshakes.accepted[0].stream));
  here.append("a word");
  here.flush();
  pollfd waited{there.fd(), POLLIN, 0};
  ::poll(&waited, 1, 20000);
  there.receive();
  EXPECT_EQ(there.next(), "a word");
}

TEST(Connector, SaysWhoRefusesIt) {
  Acceptor acceptor(listen(), "secret", Protection::authenticate,
                    [](const Identity& peer) { return "there is no " + peer.role + " here"; });
  const auto refusal = [&](std::string_view secret, const Identity& identity) {
    Connector connector({acceptor.address()}, secret, identity);
    Handshakes handshakes;
    handshakes.run(connector, acceptor);
    EXPECT_TRUE(handshakes.accepted.empty());
    EXPECT_THAT(connector.why(), HasSubstr(acceptor.address().text()));
    return connector.refusal();
  };
  EXPECT_THAT(refusal("another", {"job", "worker", 1}), HasSubstr("token"));
  EXPECT_THAT(refusal("secret", {"job", "worker", 1}), HasSubstr("there is no worker here"));
  EXPECT_THAT(refusal("secret", {"job", "worker", 1, Protection::none}), HasSubstr("'none'"));
  EXPECT_EQ(acceptor.counts().refused, 2U);
  EXPECT_EQ(acceptor.counts().gone, 1U) << "who is not believed has gone";
}

TEST(Connector, TriesAgainWhereItIsCutOffAndNotWhereItIsRefused) {
  const Listener listener = listen();
  Connector connector({listener.address}, "secret", {"job", "worker", 1});
  std::thread server([&] {
    pollfd waited{listener.fd.get(), POLLIN, 0};
    for (int i = 0; i < 3; ++i) {
      ::poll(&waited, 1, 20000);
      UniqueFd(::accept(listener.fd.get(), nullptr, nullptr)).reset();
    }
    ::poll(&waited, 1, 20000);
    const UniqueFd last(::accept(listener.fd.get(), nullptr, nullptr));
    ::send(last.get(), "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL);
    char bytes[512];
    while (::recv(last.get(), bytes, sizeof bytes, 0) > 0) {
    }
  });
  EXPECT_FALSE(connector.run(soon()));
  EXPECT_THAT(connector.refusal(), HasSubstr("not dtrain"));
  server.join();
}

TEST(Acceptor, MakesRoomForNewcomersAndLosesTheSilentInTime) {
  Acceptor acceptor(listen(), "secret", Protection::authenticate, anyone,
                    {.max_pending = 8, .expected = 2, .handshake_timeout = milliseconds(300)});
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 30; ++i) strangers.push_back(stranger(acceptor.address()));
  EXPECT_FALSE(acceptor.due());
  Connector connector({acceptor.address()}, "secret", {"job", "worker", 1});
  Handshakes handshakes;
  handshakes.run(connector, acceptor);
  EXPECT_TRUE(handshakes.stream) << connector.why();
  EXPECT_EQ(acceptor.counts().evicted, 21U) << "ten may wait";
  ASSERT_TRUE(acceptor.due());
  const Deadline deadline = soon();
  while (acceptor.due() && !deadline.expired()) {
    pollfd waited{acceptor.fd(), POLLIN, 0};
    ::poll(&waited, 1, Deadline::after(*acceptor.due() - steady_clock().now()).poll_timeout_ms());
    acceptor.serve();
  }
  EXPECT_EQ(acceptor.counts().timed_out, 9U);
  EXPECT_THAT(acceptor.rejections(), testing::AllOf(HasSubstr("rejected 30 unauthenticated connections"),
                                                    HasSubstr("no handshake in time")));
  acceptor.close();
  EXPECT_LT(::connect(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).get(),
                      acceptor.address().get(), acceptor.address().length()),
            0);
}

constexpr std::string_view kUpKey = "0123456789abcdef0123456789abcdef",
                           kDownKey = "fedcba9876543210fedcba9876543210";

// Two ends of a store's connection; what the first says passes through a test's hands where it wants so.
struct Two {
  Two() {
    auto ends = socket_pair();
    one.emplace(SecureStream(std::move(ends[0]), FrameSealer(Protection::authenticate, kUpKey),
                             FrameOpener(Protection::authenticate, kDownKey)));
    two.emplace(SecureStream(std::move(ends[1]), FrameSealer(Protection::authenticate, kDownKey),
                             FrameOpener(Protection::authenticate, kUpKey)));
  }
  std::vector<std::string> hear(std::size_t count) {
    std::vector<std::string> heard;
    const Deadline deadline = soon();
    while (heard.size() < count && !two->over() && !deadline.expired()) {
      one->flush();
      two->receive();
      while (const auto message = two->next()) heard.emplace_back(*message);
    }
    return heard;
  }
  std::optional<StoreConnection> one, two;
};

TEST(StoreConnection, MessagesOfAnySizeArriveWholeAndInOrder) {
  Two ends;
  std::vector<std::string> said;
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, kMostBodyBytes - 1, kMostBodyBytes,
                                 kMostBodyBytes + 1, wire::kMaxPayloadBytes, std::size_t{3}}) {
    said.emplace_back(size, static_cast<char>('a' + said.size()));
    ends.one->append(said.back());
  }
  EXPECT_EQ(ends.hear(said.size()), said);
}

TEST(StoreConnection, WhatWasSaidBeforeTheEndIsHeard) {
  Two ends;
  ends.one->append("last words");
  ends.one->flush();
  ends.one->close();
  EXPECT_EQ(ends.hear(1), std::vector<std::string>{"last words"});
  ends.two->receive();
  EXPECT_TRUE(ends.two->over());
  EXPECT_TRUE(ends.two->closed_by_peer());
  ends.two->append("too late");
  EXPECT_FALSE(ends.two->flush());
}

// Authentic frames whose tags contradict each other: announced lengths bound what a reader keeps.
TEST(StoreConnection, AMessageIsAsLongAsItSaid) {
  for (const std::vector<std::uint64_t>& tags :
       {std::vector<std::uint64_t>{wire::kMaxPayloadBytes}, std::vector<std::uint64_t>{100, 200},
        std::vector<std::uint64_t>{100, 0}, std::vector<std::uint64_t>{~std::uint64_t{0}},
        std::vector<std::uint64_t>{2, ~std::uint64_t{1}}}) {
    auto pair = socket_pair();
    SecureStream liar(std::move(pair[0]), FrameSealer(Protection::authenticate, kUpKey),
                      FrameOpener(Protection::authenticate, kDownKey));
    StoreConnection victim(SecureStream(std::move(pair[1]), FrameSealer(Protection::authenticate, kDownKey),
                                        FrameOpener(Protection::authenticate, kUpKey)));
    for (const std::uint64_t tag : tags) {
      SealedFrame frame = liar.seal(tag, std::as_bytes(std::span("body", 4)));
      iovec pieces[] = {{frame.header.data(), frame.header.size()},
                        {const_cast<std::byte*>(frame.body.data()), frame.body.size()},
                        {frame.mac.data(), frame.mac_bytes}};
      ASSERT_EQ(liar.send(pieces), frame.bytes());
    }
    victim.receive();
    EXPECT_FALSE(victim.next());
    EXPECT_EQ(victim.end(), SecureStream::End::forged) << tags[0];
    EXPECT_THAT(victim.why(), HasSubstr("longer"));
    EXPECT_FALSE(victim.closed_by_peer());
  }
}

}  // namespace
}  // namespace dtrain::net
