// The communicator over a backend's messages: checks what callers pass and hands it to the group.
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "collectives/p2p/transport.h"
#include "runtime/base/log.h"
#include "runtime/base/spans.h"

namespace dtrain::p2p {

/// `name` is the same on all ranks; `timeout` bounds each call. `log` and `spans` (which may be null) must
/// outlive the communicator.
std::unique_ptr<Communicator> make_p2p_communicator(Endpoints endpoints, std::string name, Duration timeout,
                                                    Log& log, SpanRecorder* spans);

}  // namespace dtrain::p2p
