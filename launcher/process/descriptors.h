// What a forked process of the launcher's keeps open.
#pragma once

#include <vector>

namespace dtrain::launcher {

/// Closes every descriptor of this process from 3 on that is not in `kept`. Never fails.
void close_all_but(std::vector<int> kept);

}  // namespace dtrain::launcher
