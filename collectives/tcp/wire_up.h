// How the ranks of a group find and connect to each other while anybody may connect to them. A rank listens
// only until it has heard from all ranks above it, and connects to all below.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/net/protection.h"
#include "cluster/net/secure_stream.h"
#include "cluster/net/token.h"
#include "cluster/store/store.h"
#include "collectives/locality.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace dtrain::tcp {

/// What all groups of one communicator and its splits share.
struct TcpContext {
  Store* store = nullptr;      ///< borrowed; where ranks leave their addresses
  std::string host;            ///< this machine's name for errors
  std::string listening_host;  ///< the address of this machine that the others can reach
  std::optional<Token> token;  ///< the job's secret
  Protection protection = Protection::authenticate;
  Locality locality = {};
  Log* log = nullptr;  ///< borrowed
};

/// By rank. There is no connection from a rank to itself.
struct PeerConnections {
  std::vector<std::optional<net::SecureStream>> connections;
  std::vector<std::string> hosts;
};

/// Collective over the `size` ranks; `group` is their name in the store, used once. Strangers on the port are
/// each served for a few seconds, a bounded number of them at a time, and what became of them is logged.
/// Throws PeerError naming who did not come before `deadline`, UsageError when there is no such address here
/// or the ranks do not agree on the protection.
PeerConnections wire_up(const TcpContext& shared, int rank, int size, const std::string& group,
                        const Deadline& deadline);

}  // namespace dtrain::tcp
