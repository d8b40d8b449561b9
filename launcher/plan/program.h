// What PROGRAM means: the built-in `dtrain`, a Python file or module, or any executable. Everything is found
// before a single worker is started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/options.h"
#include "runtime/base/environment.h"

namespace dtrain::launcher {

struct Program {
  std::string path;               ///< absolute or relative path for execve
  std::vector<std::string> argv;  ///< argv[0] included
  /// The `dtrain` beside this launcher, or a program made with its library (cluster/detect/program_note.h):
  /// it gets the store's socket and token, and its exit codes mean what dtrain's do.
  bool uses_dtrain = false;
};

/// Resolves options.program. `environment` gives PATH and PYTHON_EXEC; `own_folder` is the folder of the
/// launcher's binary. Looks at the file system. Throws UsageError saying what was looked for, and where, when
/// there is no such program.
Program resolve_program(const LaunchOptions& options, const Environment& environment,
                        const std::string& own_folder);

/// The executable file `name` in the first folder of `path` ("/usr/bin:/bin") that has one.
std::optional<std::string> search_path(const std::string& name, const std::string& path);

/// The folder of the running binary (/proc/self/exe). Throws SystemError.
std::string folder_of_this_binary();

}  // namespace dtrain::launcher
