// The far end of `dtrain-launch --hosts`: what ssh starts on each host. It starts the launcher there, and
// ends it when its stdin closes, however that came about.
#pragma once

#include <string>

namespace dtrain::launcher {

/// `dtrain-launch --from-stdin MARK`: greets on stderr, reads a request (launch_request.h) from stdin, starts
/// `own_folder`/dtrain-launch with it, forwards lines such as "signal 15" to it as signals, and says on
/// stderr how it ended. Returns its exit code. When stdin closes, or this process is killed, the launcher is
/// killed (SIGKILL), which takes its workers with it: for the other nodes this one is lost. Throws
/// SystemError, and UsageError when the request is none. `version` is this dtrain's.
int run_proxy(const std::string& mark, const std::string& version, const std::string& own_folder);

}  // namespace dtrain::launcher
