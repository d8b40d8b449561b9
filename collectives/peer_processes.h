// Whether the processes of other ranks still run, where they can be seen from here: for backends whose
// messages do not tell a dead peer from a slow one.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/fd.h"

namespace dtrain {

/// A process as others on its machine name it. Process ids mean something only within one namespace of them.
struct ProcessName {
  std::int64_t pid = 0;
  std::uint64_t pid_namespace = 0;

  /// This process.
  static ProcessName own() noexcept;
};

class PeerProcesses {
 public:
  /// `names`: by rank; a rank of another machine or namespace has pid 0 or a namespace that is not this
  /// process' own. Where the kernel has no pidfds (old ones, sandboxes) nothing is ever found to have ended.
  explicit PeerProcesses(const std::vector<ProcessName>& names);
  PeerProcesses() = default;

  /// Ranks whose processes are seen to have ended, in good order or not.
  std::vector<int> ended() const;

 private:
  std::vector<UniqueFd> processes_;  ///< pidfds by rank; empty: not seen
};

}  // namespace dtrain
