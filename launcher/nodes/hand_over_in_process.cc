// The launcher that runs jobs of many nodes itself.
#include <sys/prctl.h>

#include "launcher/nodes/hand_over.h"
#include "launcher/nodes/nodes.h"

namespace dtrain::launcher {

void hand_over_to_nodes(const std::string&, char**) {
  ::prctl(PR_SET_NAME, "dtrain-launch");  // as ps -e and pkill know it
}

int run_many(const Job& job, Console& console) { return run_on_nodes(job, console); }

}  // namespace dtrain::launcher
