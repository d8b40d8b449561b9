// A rank is reached by the ranks of its group above it, under the secret of the group and the token, and by
// nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/tcp/peer_address.h"
#include "runtime/base/error.h"

namespace dtrain::tcp {
namespace {

using testing::HasSubstr;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

const std::optional<Token>& token() {
  static const std::optional<Token> made = make_token();
  return made;
}

class TcpRanks : public testing::Test {
 protected:
  static Purpose purpose() { return {"tcp/world/1", 0, 3, Protection::authenticate}; }

  // Why rank `from` is not let in by rank 0; empty: it is.
  std::string refusal(int from, const Purpose& its, const std::optional<Token>& its_token = token(),
                      const PeerAddress* address = nullptr) {
    net::Connector connector =
        connector_to(address != nullptr ? *address : listening_.address, from, its, its_token, soon());
    const Deadline deadline = soon();
    while (connector.refusal().empty() && !deadline.expired()) {
      std::vector<pollfd> polled{{listening_.acceptor.fd(), POLLIN, 0}};
      connector.ask(polled);
      ::poll(polled.data(), polled.size(), 5);
      for (const net::AcceptedPeer& peer : listening_.acceptor.serve()) EXPECT_EQ(peer.identity.rank, from);
      if (connector.serve(polled)) return {};
    }
    return connector.refusal();
  }

  ListeningRank listening_{"127.0.0.1", "host0", purpose(), token(), soon()};
};

TEST_F(TcpRanks, LetInThoseOfTheirGroupAboveThem) {
  EXPECT_EQ(refusal(1, purpose()), "");
  EXPECT_EQ(refusal(2, purpose()), "");
  EXPECT_THAT(refusal(3, purpose()), HasSubstr("below 3")) << "no such rank";
  EXPECT_THAT(refusal(0, purpose()), HasSubstr("got rank 0")) << "itself";
  EXPECT_THAT(refusal(2, {"tcp/world/1", 1, 3, Protection::authenticate}), HasSubstr("on its way to rank 1"));
  EXPECT_THAT(refusal(2, {"tcp/world/1", 0, 3, Protection::none}), HasSubstr("'none'"));
}

TEST_F(TcpRanks, HoldTheSecretOfTheGroupOfTheTokenAndOfTheirAddress) {
  EXPECT_THAT(refusal(1, {"tcp/world/2", 0, 3, Protection::authenticate}),
              HasSubstr("does not have this job's token"));
  EXPECT_THAT(refusal(1, purpose(), make_token()), HasSubstr("does not have this job's token"));
  EXPECT_THAT(refusal(1, purpose(), std::nullopt), HasSubstr("does not have this job's token"));
  PeerAddress another = listening_.address;
  another.nonce.front() = another.nonce.front() == '0' ? '1' : '0';
  EXPECT_THAT(refusal(1, purpose(), token(), &another), HasSubstr("does not have this job's token"))
      << "who cannot read the store stays out";
}

TEST_F(TcpRanks, AreFoundByWhatTheyLeaveInTheStore) {
  const PeerAddress found = PeerAddress::parse(listening_.address.text());
  EXPECT_EQ(found.host, "host0");
  EXPECT_EQ(found.address, listening_.acceptor.address().text());
  EXPECT_EQ(found.nonce, listening_.address.nonce);
  EXPECT_EQ(found.protection, Protection::authenticate);
  EXPECT_THROW(PeerAddress::parse("host0\n"), PeerError);
}

TEST(TcpRanksWithoutAToken, AreReachedFromThisMachineOnly) {
  const Purpose purpose{"tcp/world/1", 0, 2, Protection::authenticate};
  EXPECT_NO_THROW(ListeningRank("127.0.0.1", "host0", purpose, std::nullopt, soon()));
  EXPECT_THROW(ListeningRank("0.0.0.0", "host0", purpose, std::nullopt, soon()), UsageError);
}

}  // namespace
}  // namespace dtrain::tcp
