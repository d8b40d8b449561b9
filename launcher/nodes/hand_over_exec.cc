// The light launcher: one node by itself, many by the program beside it.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/nodes/hand_over.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {

void hand_over_to_nodes(const std::string& own_folder, char** argv) {
  const std::string program = own_folder + "/dtrain-launch-nodes";
  ::execv(program.c_str(), argv);
  throw UsageError("jobs of several nodes are run by " + program + ", which cannot be started: " +
                   std::strerror(errno) + "; install all of dtrain's programs");
}

int run_many(const Job& job, Console&) {
  throw Error("a job of " + std::to_string(job.placement.nodes.most) + " nodes came to the launcher for one");
}

int run_hosts(const ParsedCommand&, const LaunchOptions& options, const Environment&, const std::string&,
              Console&) {
  throw Error("a job on the hosts " + options.hosts + " came to the launcher for one node");
}

}  // namespace dtrain::launcher
