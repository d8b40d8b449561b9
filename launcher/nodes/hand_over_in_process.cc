// The launcher that runs jobs of many nodes itself.
#include <sys/prctl.h>

#include <cstdio>
#include <filesystem>

#include "cluster/detect/detect.h"
#include "launcher/hosts/hosts_run.h"
#include "launcher/nodes/hand_over.h"
#include "launcher/nodes/nodes.h"
#include "launcher/nodes/reach.h"
#include "launcher/plan/program.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {

void hand_over_to_nodes(const std::string&, char**) {
  ::prctl(PR_SET_NAME, "dtrain-launch");  // as ps -e and pkill know it
}

int run_many(const Job& job, Console& console) { return run_on_nodes(job, console); }

int run_hosts(const ParsedCommand& line, const LaunchOptions& options, const Environment& environment,
              const std::string& own_folder, Console& console) {
  const HostsPlan plan = make_hosts_plan(line, options, environment, this_machine().read_file,
                                         std::filesystem::current_path().string());
  if (options.dry_run || options.explain) {
    const std::string text = plan_text(plan, own_folder + "/dtrain-launch", this_machine().hostname);
    std::fputs(text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : static_cast<int>(ExitCode::system);
  }
  resolve_program(options, environment, own_folder);  // a program that is not here is hardly there
  return run_on_hosts(plan, options, find_secret(options, environment), environment, own_folder, console);
}

}  // namespace dtrain::launcher
