// A new folder of this user's in TMPDIR, or where there is room for one.
#pragma once

#include <string>

#include "runtime/base/environment.h"

namespace dtrain::launcher {

struct TemporaryFolder {
  std::string path;  ///< empty: none could be made
  std::string note;  ///< what to tell users: TMPDIR could not be used, and why; empty when it could
};

/// Makes the folder <name>-XXXXXX, mode 0700, in TMPDIR, else in /tmp, /var/tmp or /dev/shm.
TemporaryFolder make_temporary_folder(const Environment& environment, const std::string& name);

}  // namespace dtrain::launcher
