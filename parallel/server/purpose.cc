#include "parallel/server/purpose.h"

#include "collectives/tcp/peer_address.h"

namespace dtrain::server {

tcp::Purpose purpose_of(int server, int workers, Protection protection) {
  return {"parameter server " + std::to_string(server), -1, workers, protection};
}

}  // namespace dtrain::server
