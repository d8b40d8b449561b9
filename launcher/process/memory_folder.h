// A folder in this machine's memory that outlives the workers but not the launcher: what a start of the group
// leaves there the next one finds, whatever has become of the disks.
#pragma once

#include <string>

#include "runtime/base/fd.h"

namespace dtrain::launcher {

class MemoryFolder {
 public:
  /// Makes a folder for this user alone in `memory` (a tmpfs), and removes those of launchers that are gone.
  /// path() is empty when none can be made: only a worker that needs it should complain.
  explicit MemoryFolder(const std::string& memory = "/dev/shm");
  /// Removes it with all that is in it.
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  UniqueFd owner_;  // a lock that ends with this process however that ends
};

}  // namespace dtrain::launcher
