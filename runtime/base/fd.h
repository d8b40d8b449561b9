// Owned file descriptors.
#pragma once

#include <unistd.h>

#include "runtime/base/unique.h"

namespace dtrain {

struct FdTraits {
  using Handle = int;
  static Handle invalid() noexcept { return -1; }
  static void close(Handle fd) noexcept { ::close(fd); }
};

using UniqueFd = Unique<FdTraits>;

}  // namespace dtrain
