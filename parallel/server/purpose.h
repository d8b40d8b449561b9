// What a connection between a worker and a server is for, as both must prove it to each other. Internal to
// the two ends.
#pragma once

#include <string>

#include "cluster/net/protection.h"

namespace dtrain::tcp {
struct Purpose;
}

namespace dtrain::server {

/// The server, which is below every worker's number, listens; workers below `workers` connect.
tcp::Purpose purpose_of(int server, int workers, Protection protection);

}  // namespace dtrain::server
