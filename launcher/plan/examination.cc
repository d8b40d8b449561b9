// A program and options like any other's.
#include "launcher/plan/examination.h"

namespace dtrain::launcher {

Program examination_program(const LaunchOptions& options) {
  const std::string path = folder_of_this_binary() + "/dtrain";
  return {path, {path, "doctor", "--gate", "--run-dir=" + options.health_check}, true};
}

LaunchOptions examination_options(LaunchOptions options) {
  options.servers = 0;
  options.redirects = options.tee = {};
  options.log_dir.clear();
  return options;
}

}  // namespace dtrain::launcher
