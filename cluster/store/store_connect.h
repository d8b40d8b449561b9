// Connecting to the store and proving ourselves, with retries until a deadline. Internal to the client.
#pragma once

#include <string>

#include "cluster/net/endpoint.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_wire.h"

namespace dtrain {

/// An authenticated, non-blocking connection.
struct StoreStream {
  UniqueFd fd;
  SocketAddress local;
  wire::FrameReader reader;
  wire::FrameWriter writer;
};

/// See StoreClient's constructor.
StoreStream connect_to_store(const Endpoint& server, const StoreClientOptions& options,
                             const Deadline& deadline);

}  // namespace dtrain
