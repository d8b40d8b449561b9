// Where a rank listens for others, and how they find it: the address it leaves in the store, and the secret
// of the connections to it. Internal to who listens and who connects.
#pragma once

#include <optional>
#include <string>

#include "cluster/net/acceptor.h"
#include "cluster/net/connector.h"
#include "cluster/net/token.h"

namespace dtrain::tcp {

/// What both ends of a connection must agree on before they speak.
struct Purpose {
  std::string group;  ///< the group's name in the store, unique in the job
  int to = 0;         ///< the rank that listens; those above it connect
  int size = 0;       ///< of the group
  Protection protection = Protection::authenticate;
};

/// What a rank leaves in the store.
struct PeerAddress {
  std::string host;     ///< its machine's name
  std::string address;  ///< where it listens, "10.0.0.1:34567"
  std::string nonce;    ///< random; goes into the secret of who connects, so that who cannot read the store
                        ///< there stays out even where there is no token
  Protection protection = Protection::authenticate;

  std::string text() const;
  /// Throws PeerError when `text` is no address.
  static PeerAddress parse(const std::string& text);
};

/// A rank's listening socket.
struct ListeningRank {
  /// Listens on a free port of `interface`, for ranks of the group above purpose.to. Throws as listen_on, and
  /// as require_token.
  ListeningRank(const std::string& interface, const std::string& host, const Purpose& purpose,
                const std::optional<Token>& token, const Deadline& deadline);

  PeerAddress address;
  net::Acceptor acceptor;
};

/// The way of rank `from` to the rank whose address this is. Throws as resolve().
net::Connector connector_to(const PeerAddress& peer, int from, const Purpose& purpose,
                            const std::optional<Token>& token, const Deadline& deadline);

}  // namespace dtrain::tcp
