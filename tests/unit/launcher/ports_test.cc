// Free and taken ports, on loopback.
#include "launcher/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Ports, FreeOnesDiffer) {
  std::vector<Listener> listeners;
  std::set<int> ports;
  for (int i = 0; i < 20; ++i) {
    listeners.push_back(listen_on("127.0.0.1", 0));
    ports.insert(listeners.back().port);
  }
  EXPECT_EQ(ports.size(), 20u);
  EXPECT_FALSE(ports.contains(0));
}

TEST(Ports, TakenPortNamesItsOwner) {
  const Listener first = listen_on("127.0.0.1", 0);
  EXPECT_THAT(owner_of_port(first.port), HasSubstr("pid " + std::to_string(::getpid())));
  EXPECT_THAT(complaint([&] { listen_on("127.0.0.1", first.port); }),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(first.port)),
                    HasSubstr("pid " + std::to_string(::getpid()))));
}

TEST(Ports, AClosedOneCanBeTakenAgainAtOnce) {
  Listener first = listen_on("127.0.0.1", 0);
  const std::uint16_t port = first.port;
  first.fd.reset();
  EXPECT_EQ(listen_on("127.0.0.1", port).port, port);
  EXPECT_EQ(owner_of_port(port), "");
}

TEST(Ports, ForeignAndUnknownAddressesAreRefused) {
  EXPECT_THAT(complaint([] { listen_on("192.0.2.1", 0); }), HasSubstr("not an address of this machine"));
  EXPECT_THAT(complaint([] { listen_on("192.0.2.1", 4000); }), HasSubstr("not an address of this machine"));
  EXPECT_THAT(complaint([] { listen_on("300.1.2.3.4", 0); }), HasSubstr("--master-addr"));
}

}  // namespace
}  // namespace dtrain::launcher
