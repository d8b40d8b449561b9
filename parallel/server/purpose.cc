#include "parallel/server/purpose.h"

#include "collectives/tcp/handshake.h"

namespace dtrain::server {

tcp::Purpose purpose_of(int server, int worker, Protection protection) {
  return {"parameter server " + std::to_string(server), worker, -1, protection};
}

}  // namespace dtrain::server
