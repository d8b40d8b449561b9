// What workers that have ended left running in the background, for people.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

class Leftovers {
 public:
  /// One of them; nothing where it has ended meanwhile.
  void note(pid_t pid, const std::string& worker);
  /// "all workers have ended, but 3 processes … : sh (pid 42, of rank 0), …"; those that were noted are
  /// named.
  std::string text(int count, Duration time) const;

 private:
  std::vector<std::string> names_;
};

/// "30", "0.5".
std::string in_seconds(Duration time);

}  // namespace dtrain::launcher
