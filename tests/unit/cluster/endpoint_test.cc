// Endpoint grammar, resolving, listening on a port the kernel picks, and who holds a taken port.
#include "cluster/net/endpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "runtime/base/check.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using std::chrono::seconds;
using test::message_of;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(10)); }

TEST(Endpoint, ParsesNamesAndLiterals) {
  EXPECT_EQ(parse_endpoint("node1:29500", "--x"), (Endpoint{"node1", 29500}));
  EXPECT_EQ(parse_endpoint("[::1]:0", "--x"), (Endpoint{"::1", 0}));
  EXPECT_EQ(parse_endpoint("10.0.0.1", "--x", 7), (Endpoint{"10.0.0.1", 7}));
  EXPECT_EQ(parse_endpoint("fe80::1", "--x", 7), (Endpoint{"fe80::1", 7}));
  EXPECT_EQ(parse_endpoint("[fe80::1]", "--x", 7), (Endpoint{"fe80::1", 7}));
  EXPECT_EQ((Endpoint{"::1", 80}).text(), "[::1]:80");
  EXPECT_EQ((Endpoint{"host", 80}).text(), "host:80");
}

TEST(Endpoint, RefusesWhatIsNotOneNamingTheOption) {
  for (const char* text :
       {"", ":1", "host", "host:", "host:65536", "host:-1", "host:1x", "host: 1", "::1:29500", "[::1",
        "[::1]29500", "[]:1", "a b:1", "http://host:80", "host:99999999999999999999"}) {
    EXPECT_THROW(parse_endpoint(text, "--rdzv-endpoint"), UsageError) << text;
    EXPECT_THAT(message_of([&] { parse_endpoint(text, "--rdzv-endpoint"); }), HasSubstr("--rdzv-endpoint"))
        << text;
  }
}

TEST(Endpoint, ResolvesLiteralsAndLocalhost) {
  EXPECT_EQ(resolve({"127.0.0.1", 5}, soon()).front().text(), "127.0.0.1:5");
  EXPECT_EQ(resolve({"::1", 5}, soon()).front().text(), "[::1]:5");
  EXPECT_TRUE(resolve({"localhost", 5}, soon()).front().is_loopback());
  EXPECT_FALSE(resolve({"192.0.2.1", 5}, soon()).front().is_loopback());
  EXPECT_TRUE(resolve({"::ffff:127.0.0.1", 5}, soon()).front().is_loopback());
  EXPECT_TRUE(resolve({"0.0.0.0", 5}, soon()).front().is_any());
}

TEST(Endpoint, UnknownNameIsPeerErrorByTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(resolve({"no-such-host.invalid", 5}, Deadline::after(std::chrono::milliseconds(300))),
               PeerError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
}

// As a container's name before the container runs.
TEST(Endpoint, ANameThatIsNotKnownYetIsAskedForUntilTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(500));
  EXPECT_THAT(message_of([&] {
                resolve_when_known({"no-such-host.invalid", 5}, deadline);
              }),
              HasSubstr("no-such-host.invalid"));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
}

TEST(Listener, PicksAFreePortAndListensOnThatAddressOnly) {
  const Listener first = listen_on("127.0.0.1", 0, soon());
  EXPECT_NE(first.port(), 0);
  EXPECT_EQ(first.address.host(), "127.0.0.1");
  EXPECT_NE(::fcntl(first.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  const Listener neighbour = listen_on("127.0.0.2", first.port(), soon());
  EXPECT_EQ(neighbour.port(), first.port());
}

TEST(Listener, TakenPortNamesAddressAndOwner) {
  const Listener first = listen_on("127.0.0.1", 0, soon());
  const std::string text = message_of([&] { listen_on("127.0.0.1", first.port(), soon()); });
  EXPECT_THAT(text, HasSubstr("127.0.0.1:" + std::to_string(first.port())));
  EXPECT_THAT(text, HasSubstr("pid " + std::to_string(::getpid())));
}

TEST(Listener, RefusesAnAddressOfAnotherMachine) {
  EXPECT_THROW(listen_on("192.0.2.1", 0, soon()), UsageError);
}

TEST(Listener, ALastingPortLiesBelowTheKernelsOwn) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 32768;
  range >> low;
  std::set<int> ports;
  std::vector<Listener> listeners;
  for (int i = 0; i < 20; ++i) {
    listeners.push_back(listen_on_lasting_port("127.0.0.1", soon()));
    ports.insert(listeners.back().port());
  }
  EXPECT_EQ(ports.size(), 20u);
  if (low > 12000) {
    EXPECT_LT(*ports.rbegin(), low);
  }
}

TEST(Interfaces, OwnAddressesAreKnown) {
  EXPECT_TRUE(is_own_address(resolve({"127.0.0.1", 80}, soon()).front()));
  EXPECT_FALSE(is_own_address(resolve({"192.0.2.1", 80}, soon()).front()));
  EXPECT_EQ(outward_address("lo"), "127.0.0.1");
  EXPECT_EQ(outward_address("no-such-interface"), "");
  const std::string any = outward_address("");
  if (!any.empty()) {
    EXPECT_FALSE(resolve({any, 1}, soon()).front().is_loopback());
    EXPECT_TRUE(is_own_address(resolve({any, 1}, soon()).front()));
  }
}

TEST(Listener, AdoptsOnlyListeningSockets) {
  Listener first = listen_on("127.0.0.1", 0, soon());
  const std::uint16_t port = first.port();
  EXPECT_EQ(adopt_listener(std::move(first.fd), "DTRAIN_STORE_FD").port(), port);
  EXPECT_THAT(message_of([] { adopt_listener(UniqueFd(::open("/dev/null", O_RDONLY)), "DTRAIN_STORE_FD"); }),
              HasSubstr("DTRAIN_STORE_FD"));
  EXPECT_THROW(adopt_listener(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), "x"), UsageError);
}

TEST(Route, LoopbackGoesOverLo) {
  const Route route = route_to(resolve({"127.0.0.1", 9}, soon()).front());
  EXPECT_EQ(route.address, "127.0.0.1");
  EXPECT_EQ(route.interface, "lo");
}

}  // namespace
}  // namespace dtrain
