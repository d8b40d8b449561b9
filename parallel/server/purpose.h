// What a connection between a worker and a server is for, as both must prove it to each other. Internal to
// the two ends.
#pragma once

#include <string>

#include "collectives/protection.h"

namespace dtrain::tcp {
struct Purpose;
}

namespace dtrain::server {

/// `worker`: who connects; the server, which is below every worker's number, listens.
tcp::Purpose purpose_of(int server, int worker, Protection protection);

}  // namespace dtrain::server
